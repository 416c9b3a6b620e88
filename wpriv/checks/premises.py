"""Premises of a claim: the fields of the record, how each is written, and where each value was found."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from wpriv.config.document import Diagnostic, Document, Key, refusal
from wpriv.errors import UsageError
from wpriv.hints import did_you_mean, fold, instead, plain
from wpriv.numerics.numbers import number, shown, whole

# a step in the recipe language: {mech: gauss, sigma: 1, sampling: poisson, rate: 0.01, n: 500}
StepSpec = Mapping[str, object]
# yes and no are bools, counts are ints, lists are tuples
Value = float | str | bool | tuple[str, ...] | tuple[float, ...] | tuple[StepSpec, ...]

# sources of a value, in the order in which they decide where several have one
READ, COMPUTED, DECLARED = "read", "computed", "declared"
# relative difference up to which two numbers of one premise agree
AGREE = 1e-6
MAX_STEPS = 100_000
# keys of a YAML of premises that are no premises
ABOUT = ("kind", "title", "source", "seen", "breaks", "corrected", "expect")


@dataclass(frozen=True)
class Fact:
    """One value of one premise.

    Args:
        field: a name of ``FIELDS``, such as ``sampling.rate``.
        value: in the form of that field, as ``parsed`` returns it.
        source: ``read`` from an object or a file, ``declared`` by the user, or ``computed`` from others.
        where: where it was seen, in words: "loader.batch_sampler.sampler is a RandomSampler without replacement".
    """

    field: str
    value: Value
    source: str = READ
    where: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "value", parsed(self.field, self.value))


@dataclass(frozen=True)
class Found:
    """What a reader found in an object or a file.

    Args:
        name: of the source, with the version where it is known: "opacus 1.6.0".
        facts: the premises that it shows; what it does not show is left out.
        accounted: the steps that the library accounted for, in the recipe language.
        ran: the steps that the objects show to have run; empty where they show no others than ``accounted``.
        notes: remarks for the reader of the verdict.
        read: what was read, in a few short words each: ("history", "expected_batch_size 50").
        changes: what to change where a premise is at fault, as pairs of its field and an imperative sentence.
        contradictions: two sources that disagree about what no field holds, each in a sentence.
        left_out: where ``ran`` is a part of what ran, which may refute and not prove, what it leaves out.
    """

    name: str
    facts: tuple[Fact, ...] = ()
    accounted: tuple[StepSpec, ...] = ()
    ran: tuple[StepSpec, ...] = ()
    notes: tuple[str, ...] = ()
    read: tuple[str, ...] = ()
    contradictions: tuple[str, ...] = ()
    changes: tuple[tuple[str, str], ...] = ()
    left_out: str = ""


@dataclass(frozen=True)
class Field:
    """The form of one premise.

    Args:
        form: number, count, yes (or no), word, text, texts, numbers, steps, or best (a count, or no).
        about: what it is, with its unit. words: those that a word may be. least, most: ends of a number.
        positive: whether the least value itself is excluded.
    """

    form: str
    about: str
    words: tuple[str, ...] = ()
    least: float = 0.0
    most: float = math.inf
    positive: bool = False


def _word(about: str, words: str) -> Field:
    return Field("word", about, tuple(words.split("|")))


def _share(about: str) -> Field:
    return Field("number", about, most=1.0, positive=True)


def _above(about: str) -> Field:
    return Field("number", about, positive=True)


def _count(about: str, least: int = 1) -> Field:
    return Field("count", about, least=least, most=2.0**40)


FIELDS: Mapping[str, Field] = {
    "claim.eps": Field("number", "the eps that was claimed"),
    "claim.delta": Field("number", "the delta that was claimed, below 1", most=math.nextafter(1.0, 0.0)),
    "claim.rho": Field("number", "the rho of a claim of zero-concentrated DP"),
    "claim.xi": Field("number", "the xi of a claim of (xi, rho)-zCDP"),
    "claim.mu": Field("number", "the mu of a claim of Gaussian DP"),
    "claim.by": Field("text", "the library and the accountant that printed it"),
    "claim.kind": _word("whether it is a bound, or an estimate (a central limit, an audit)", "bound|estimate"),
    "claim.printed": Field("yes", "whether its eps is a printed figure, rounded in its last digit"),
    "claim.delta_accounted": Field("number", "the delta at which the library computed eps", most=1.0, positive=True),
    "unit": _word("what is protected", "record|sequence|client|person|site"),
    "max_per_unit": _count("the largest number of records of one person"),
    "adjacency": _word("which data sets are neighbours", "add-remove|zero-out|replace-one|any-two|given-pair"),
    "sampling.kind": _word(
        "how the records of a step were drawn", "poisson|fixed|shuffle|order|weighted|allocation|cyclic-poisson|none"
    ),
    "sampling.rate": _share("the probability that a record takes part in a step, of what ran"),
    "sampling.rate_accounted": _share("the probability that was accounted for"),
    "sampling.batch": _count("the number of records, or of draws, of a step"),
    "sampling.truncated": _count("the largest batch, of which a random part is kept where more were drawn"),
    "sampling.max_weight": _share("the largest share of one record in a draw, or of one client in a weighted mean"),
    "sampling.workers": _count("workers that draw from the whole data each"),
    "sampling.bands": _count("steps of a cycle of cyclic Poisson sampling"),
    "records": _count("the number of records"),
    "records_public": Field("yes", "whether the number of records is public"),
    "steps": _count("the number of releases that ran", 0),
    "steps_accounted": _count("the number of releases that was accounted for", 0),
    "steps_source": _word("where the number of steps is from", "history|counter|planned"),
    "noise.multiplier": Field("number", "standard deviation of the noise over the sensitivity that was assumed"),
    "noise.std": Field("number", "standard deviation of the noise on the sum of clipped gradients"),
    "noise.seed": _word("whether the seed of the noise is secret", "secret|public|os"),
    "noise.relative_to": _word("what the noise multiplier is relative to", "clip|2 clip|mean|weight"),
    "clip.norm": Field("numbers", "the clipping norm of one record, or a list of those of its parts", positive=True),
    "clip.scope": _word("what is clipped to the norm at once", "global|per tensor|per layer"),
    "clip.tensors": _count("the number of tensors that are clipped one by one"),
    "clip.per": _word("what is clipped at once", "record|microbatch|client"),
    "clip.adaptive": _word("how the clipping norm was adapted", "none|public|noisy"),
    "clip.count_std": _above("standard deviation of the noise on the count of clipped records"),
    "divisor": _word("what the noisy sum is divided by", "constant|expected|batch|weights"),
    "model.mixes_records": Field("texts", "layers in which a record changes what others contribute"),
    "model.parameters": _count("the number of coordinates of a release"),
    "model.trained_by": Field("text", "the class of the optimizer that stepped"),
    "composition.runs": _count("trainings on the same data"),
    "composition.selected": Field("best", "of how many runs the best was taken; no for none"),
    "composition.other": Field("steps", "other releases of the same data, as steps"),
    "released": _word("what was released", "last weights|all weights|metrics"),
    "process": Field("steps", "what ran, as steps"),
    "accounted": Field("steps", "what was accounted for, as steps"),
}
# other words for values
_MEANINGS = {
    "divisor": {
        "public constant": "constant",
        "expected from n": "expected",
        "actual batch": "batch",
        "weights": "weights",
    },
    "noise.relative_to": {"2clip": "2 clip", "2 x clip": "2 clip"},
    "clip.scope": {"per parameter": "per tensor"},
    "released": {"last": "last weights", "all": "all weights"},
}
_GROUPS = tuple(dict.fromkeys(name.partition(".")[0] for name in FIELDS if "." in name))


def field_named(name: str) -> Field:
    """Return the form of a premise; UsageError for an unknown one, with the nearest name."""
    if name not in FIELDS:
        raise UsageError(f"no premise is called {name[:60]!r}{_near(name)} `wpriv list premises` names all")
    return FIELDS[name]


def _near(name: str) -> str:
    """The nearest name of a premise; the last part of a name stands for the whole."""
    last = fold(name.rpartition(".")[2]).replace("-", "_")
    whole_names = [each for each in FIELDS if each.rpartition(".")[2] == last]
    return f"; did you mean {whole_names[0]!r}?" if whole_names else did_you_mean(name, list(FIELDS)) or "."


def parsed(name: str, value: object) -> Value:
    """Return the value of a premise in its form: text as users type it, or plain data of a file.

    Raises:
        UsageError: there is no such premise, or the value has another form or is out of range.
    """
    if name in _GROUPS and name not in FIELDS:
        inner = ", ".join(each.partition(".")[2] for each in FIELDS if each.startswith(f"{name}."))
        raise UsageError(f"{name} is a mapping of {inner}; found {shown(value)}")
    form = field_named(name)
    if form.form in ("number", "count"):
        return _number(name, form, value)
    if form.form == "numbers":
        items = value.split(",") if isinstance(value, str) else [value] if isinstance(value, (int, float)) else value
        if not isinstance(items, Sequence) or not 1 <= len(items) <= MAX_STEPS:
            raise UsageError(f"{name} is a list of numbers; found {shown(value)}")
        return tuple(_number(name, form, item) for item in items)
    if form.form == "best":
        no = value in (None, False) or (isinstance(value, str) and fold(value) in ("no", "false", "none"))
        return 0 if no else _number(name, replace(form, form="count", least=1.0, most=2.0**40), value)
    if form.form == "yes":
        return _yes(name, value)
    if form.form == "steps":
        return _steps(name, value)
    if form.form == "texts":
        return _texts(name, value)
    if not isinstance(value, str) or not value.strip():
        raise UsageError(f"{name} ({form.about}) is text; found {shown(value)}")
    if form.form == "text":
        return value.strip()[:200]
    word = _plain_word(name, value)
    if word not in form.words:
        raise UsageError(f"{name} has no value {value[:60]!r}{instead(value, form.words)}")
    return word


def _plain_word(name: str, value: str) -> str:
    if name == "sampling.kind":
        return "fixed" if fold(value) == "fixed" else plain("samplings", value)
    if name == "adjacency":
        return plain("adjacencies", value)
    word = " ".join(value.strip().lower().replace("_", " ").replace("-", " ").split())
    return _MEANINGS.get(name, {}).get(word, word)


def _number(name: str, form: Field, value: object) -> float:
    """A number or a count within the ends of its field."""
    if isinstance(value, bool):
        raise UsageError(f"{name} ({form.about}) is a number; found {shown(value)}")
    found = whole(value, name) if form.form == "count" else number(value, name)
    if not form.least <= found <= form.most or (form.positive and found == form.least):
        least = f"{'above' if form.positive else 'at least'} {form.least:g}"
        most = f" and at most {form.most:g}" if form.most < 2.0**40 else ""
        raise UsageError(f"{name} ({form.about}) must be {least}{most}; found {shown(value)}")
    return found


def _yes(name: str, value: object) -> bool:
    if isinstance(value, str) and fold(value) in ("yes", "true", "no", "false"):
        return fold(value) in ("yes", "true")
    if not isinstance(value, bool):
        raise UsageError(f"{name} ({FIELDS[name].about}) is yes or no; found {shown(value)}")
    return value


def _texts(name: str, value: object) -> tuple[str, ...]:
    if value is None or value is False or (isinstance(value, str) and fold(value) in ("no", "none")):
        return ()
    items = value.split(",") if isinstance(value, str) else value
    if not isinstance(items, Sequence) or not all(isinstance(item, str) for item in items):
        raise UsageError(f"{name} ({FIELDS[name].about}) is a list of names; found {shown(value)}")
    return tuple(item.strip()[:200] for item in items[:MAX_STEPS] if item.strip())


def _steps(name: str, value: object) -> tuple[StepSpec, ...]:
    """Steps as mappings or in words; what they hold is checked where their process is built."""
    if isinstance(value, str) and fold(value) in ("no", "none", "[]"):
        return ()
    if isinstance(value, str):
        from wpriv.config import plain_words

        return tuple(plain_words.parse(value).steps)
    items = [value] if isinstance(value, Mapping) else value
    if not isinstance(items, Sequence) or not all(isinstance(item, Mapping) for item in items):
        raise UsageError(
            f"{name} ({FIELDS[name].about}) is a list of steps such as {{mech: gauss, sigma: 1}}; found {shown(value)}"
        )
    if len(items) > MAX_STEPS:
        raise UsageError(f"{name} has up to {MAX_STEPS:,} kinds of steps; found {len(items):,}. Merge equal ones")
    return tuple({str(key): inner for key, inner in item.items()} for item in items)


def declared(texts: Iterable[str]) -> tuple[Fact, ...]:
    """Return the facts of ``field=value`` texts, as of ``--premise``.

    Raises:
        UsageError: a text has another form, a field is unknown or given twice, or a value is out of range.
    """
    facts: dict[str, Fact] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        name = name.strip()
        if not equals or not name:
            raise UsageError(f"a premise is given as field=value, as in sampling.kind=poisson; found {text[:80]!r}")
        if name in facts:
            raise UsageError(f"the premise {name} is given twice; give it once")
        facts[name] = Fact(name, value.strip(), DECLARED, f"--premise {name}={value.strip()[:60]}")
    return tuple(facts.values())


def of_mapping(premises: Mapping[str, object], where: str = "premises") -> tuple[Fact, ...]:
    """Return the declared facts of a mapping, nested as in YAML or with dotted names; UsageError as ``parsed``."""
    return tuple(Fact(name, parsed(name, value), DECLARED, where) for name, value, _ in _flat(premises))


def of_document(document: Document) -> tuple[Fact, ...]:
    """Return the declared facts of a YAML of premises (``kind: check``).

    Raises:
        UsageError: every unknown key and every value out of range, with its line and column.
    """
    facts, faults = [], list[Diagnostic]()
    data = {key: value for key, value in document.data.items() if key not in ABOUT}
    for name, value, path in _flat(data):
        try:
            facts.append(Fact(name, parsed(name, value), DECLARED, f"{document.name}, line {document.place(path)[0]}"))
        except UsageError as error:
            faults.append(document.diagnostic(path, str(error), at_key=name not in FIELDS))
    if faults:
        raise refusal(document, faults)
    return tuple(facts)


def _flat(data: Mapping[str, object]) -> Iterator[tuple[str, object, Key]]:
    """The dotted name, the value and the path of every premise of nested data; those that are None are left out."""
    for key, value in data.items():
        if key in _GROUPS and isinstance(value, Mapping):
            yield from (
                (f"{key}.{inner}", each, (key, str(inner))) for inner, each in value.items() if each is not None
            )
        elif value is not None:
            yield str(key), value, (str(key),)


def agree(one: Value, other: Value) -> bool:
    """Tell whether two values of one premise are the same, numbers up to rounding."""
    if isinstance(one, (int, float)) and isinstance(other, (int, float)):
        return math.isclose(one, other, rel_tol=AGREE)
    if isinstance(one, tuple) and isinstance(other, tuple) and one and not isinstance(one[0], (str, Mapping)):
        pairs = zip(one, other, strict=False)
        return len(one) == len(other) and all(
            isinstance(a, float) and isinstance(b, float) and agree(a, b) for a, b in pairs
        )
    return one == other


@dataclass(frozen=True)
class Premises:
    """All premises of one claim, each with where it was found.

    What is read decides over what is computed, and this over what is declared. ``contradictions`` are the pairs of
    facts of one field that disagree.
    """

    facts: Mapping[str, Fact] = field(default_factory=dict)
    contradictions: tuple[tuple[Fact, Fact], ...] = ()

    @classmethod
    def of(cls, facts: Iterable[Fact]) -> Premises:
        """Merge facts: of one field the one whose source decides, the others compared with it."""
        order = (READ, COMPUTED, DECLARED)
        merged: dict[str, Fact] = {}
        contradictions = []
        for fact in sorted(facts, key=lambda each: order.index(each.source)):
            first = merged.setdefault(fact.field, fact)
            if not agree(first.value, fact.value):
                contradictions.append((first, fact))
        return cls(merged, tuple(contradictions))

    def __contains__(self, name: str) -> bool:
        return name in self.facts

    def fact(self, name: str) -> Fact | None:
        """The fact of a field; None where it is missing."""
        assert name in FIELDS, name
        return self.facts.get(name)

    def _value(self, name: str, form: str) -> Value | None:
        assert FIELDS[name].form in form, name
        return self.facts[name].value if name in self.facts else None

    def number(self, name: str) -> float | None:
        """The number or count of a field; None where it is missing."""
        value = self._value(name, "number count best")
        assert value is None or isinstance(value, (int, float))
        return value

    def count(self, name: str) -> int | None:
        """The count of a field; None where it is missing."""
        value = self.number(name)
        return None if value is None else int(value)

    def word(self, name: str) -> str:
        """The word or text of a field; "" where it is missing."""
        value = self._value(name, "word text")
        return value if isinstance(value, str) else ""

    def yes(self, name: str) -> bool | None:
        """Yes or no; None where it is missing."""
        value = self._value(name, "yes")
        return value if isinstance(value, bool) else None

    def steps(self, name: str) -> tuple[StepSpec, ...]:
        """The steps of a field; none where it is missing."""
        value = self._value(name, "steps")
        return tuple(each for each in value if isinstance(each, Mapping)) if isinstance(value, tuple) else ()

    def texts(self, name: str) -> tuple[str, ...]:
        """The names of a field; none where it is missing."""
        value = self._value(name, "texts")
        return tuple(map(str, value)) if isinstance(value, tuple) else ()

    def numbers(self, name: str) -> tuple[float, ...]:
        """The numbers of a field; none where it is missing."""
        value = self._value(name, "numbers")
        return tuple(each for each in value if isinstance(each, (int, float))) if isinstance(value, tuple) else ()

    def having(self, name: str, value: Value, source: str = DECLARED) -> Premises:
        """These premises with another value of one field."""
        return replace(self, facts={**self.facts, name: Fact(name, value, source)})

    def without(self, name: str) -> Premises:
        """These premises with one field missing."""
        return replace(self, facts={field: fact for field, fact in self.facts.items() if field != name})
