"""Steps and keywords in the words of other programs, and processes and claims in words: "gauss sigma=4 n=10", "mu=1".

All become the words here (see ``SYNONYMS`` of ``wpriv.hints``). No pydantic is loaded, since `wpriv budget` needs none.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import re
import shlex
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

from wpriv.core import registry
from wpriv.core.kinds import SAMPLINGS, Adjacency
from wpriv.core.mechanism import Mechanism
from wpriv.errors import UsageError
from wpriv.hints import DP_SGD, did_you_mean, elsewhere, fold, plain, plain_key
from wpriv.numerics.numbers import echo, number, quotient_up, short, shown

P = ParamSpec("P")
T = TypeVar("T")
# keys of a step that are about Gaussian noise
_SIGMA = {"sigma", "noise_multiplier"}
# the kind of synonyms that the value of a key has
VALUES = {"mech": "mechanisms", "sampling": "samplings", "adjacency": "adjacencies"}


def renamed(written: Mapping[str, object]) -> dict[str, str]:
    """The key here of every key of a step, with parameters of its mechanism as they are."""
    mech = next((written[key] for key in written if plain_key(key) == "mech"), None)
    fields = _parameters(mech)
    names = {key: key if key in fields else plain_key(key) for key in written}
    given: dict[str, str] = {}
    for key, name in names.items():
        if written[key] is not None and given.setdefault(name, key) != key:
            raise UsageError(f"`{given[name]}` and `{key}` mean the same; give one of them")
    return names


def plain_step(written: Mapping[str, object]) -> dict[str, Any]:
    """A step in the words here: its keys, its mechanism and its sampling.

    A noise multiplier becomes sigma, and eps (with delta) that of a mechanism that is known by them, or else the scale
    of Laplace noise. The mechanism ``dpsgd`` is Gaussian noise with Poisson sampling. The mechanism None is ``gauss``
    where there is a sigma or a noise multiplier.

    Raises:
        UsageError: something is given twice under two names, a noise multiplier or eps has no meaning, or ``dpsgd``
            stands beside another sampling.
    """
    return _with_weight(with_scale(with_sigma(with_noise(plain_values(_with_plain_keys(written))))))


def with_noise(step: dict[str, Any], swept: Collection[str] = ()) -> dict[str, Any]:
    """The step; where its mechanism is None and it or a sweep has a sigma or a noise multiplier, that is ``gauss``."""
    given = {*swept, *(key for key, value in step.items() if value is not None)}
    return {**step, "mech": "gauss"} if step.get("mech", "") is None and given & _SIGMA else step


def require_mechanism(step: Mapping[str, object]) -> None:
    """Raise UsageError for a step whose mechanism is None, with the sampling that is missing as well."""
    if step.get("mech", "") is not None:
        return
    shares = [key for key in ("batch", "rate", "epochs") if step.get(key) is not None]
    batches = " and `sampling='poisson'`" if shares and step.get("sampling") in (None, "none") else ""
    raise UsageError(
        f"a step needs a mechanism: add `mech='gauss'`{batches}, as in DP-SGD; `wpriv list mechanisms` names all"
    )


def _with_plain_keys(written: Mapping[str, object]) -> dict[str, Any]:
    """A step with the keys here; their values are as they were written."""
    names = renamed(written)
    step: dict[str, Any] = {}
    for key, value in written.items():
        if value is not None or names[key] not in step:
            step[names[key]] = value
    return step


def plain_values(written: Mapping[str, Any]) -> dict[str, Any]:
    """The keys of a step or of a question with the names here of mechanism, sampling and adjacency."""
    step = dict(written)
    if isinstance(step.get("mech"), str) and fold(step["mech"]) in DP_SGD:
        given = step.get("sampling")
        kind = plain("samplings", given) if isinstance(given, str) else given
        if kind not in (None, "poisson"):
            raise UsageError(
                f"{step['mech']} is Gaussian noise on Poisson batches; found sampling {shown(given)}. Leave the "
                f"sampling out, or write gauss instead of {step['mech']}"
            )
        step |= {"mech": "gauss", "sampling": "poisson"}
    for key, kind in VALUES.items():
        if isinstance(step.get(key), str) and "=" not in step[key]:  # else a process in words
            step[key] = plain(kind, step[key])
    if isinstance(step.get("accountant"), str):
        step["accountant"] = registry.plain_accountant(step["accountant"])
    return step


def with_sigma(step: dict[str, Any]) -> dict[str, Any]:
    """The step with sigma = noise multiplier x sensitivity in the place of a noise multiplier."""
    multiplier, fields = step.pop("noise_multiplier", None), _parameters(step.get("mech"))
    if multiplier is None or not fields:  # an unknown mechanism is refused as such
        return step
    if step.get("sigma") is not None:
        raise UsageError("`sigma` and `noise_multiplier` both set the noise; give one of them")
    if not {"sigma", "sensitivity"} <= fields.keys():
        fault = f"`noise_multiplier` is sigma / sensitivity, and {step.get('mech')} does not have both"
        raise UsageError(f"{fault}; its parameters: {', '.join(fields) or 'none'}")
    factor, given = number(multiplier, "`noise_multiplier`"), step.get("sensitivity")
    sensitivity: Any = fields["sensitivity"].default if given is None else number(given, "sensitivity")
    if not factor > 0:
        raise UsageError(f"`noise_multiplier` must be greater than 0; found {echo(factor)}")
    return {**step, "sigma": factor * sensitivity}


def with_scale(step: dict[str, Any]) -> dict[str, Any]:
    """The step with eps0 and delta0 in the place of eps and delta, or with scale = sensitivity / eps, rounded up."""
    fields, given = _parameters(step.get("mech")), {key: step[key] for key in ("eps", "delta") if key in step}
    if not given or not fields:
        return step
    step = {key: value for key, value in step.items() if key not in given}
    names = {key: f"{key}0" for key in given if f"{key}0" in fields}
    if names.keys() == given.keys() and not names.values() & step.keys():
        return {**step, **{names[key]: value for key, value in given.items()}}
    mech = step.get("mech")
    # of a selection scale = sensitivity / eps is not what eps means
    if given.keys() != {"eps"} or not {"scale", "sensitivity"} <= fields.keys() or "monotone" in fields:
        raise UsageError(
            f"{' and '.join(given)} {'are' if len(given) > 1 else 'is'} no parameter of {mech}; its parameters: "
            f"{', '.join(fields) or 'none'}. A step of which only eps and delta are known is "
            f'{{"mech": "dp", "eps0": 1, "delta0": 0}}'
        )
    if step.get("scale") is not None:
        raise UsageError("scale and epsilon both set the noise; give one of them")
    eps = number(given["eps"], "epsilon")
    if not eps > 0:
        raise UsageError(f"epsilon of a step must be greater than 0; found {echo(eps)}")
    sensitivity: Any = step.get("sensitivity")
    width = fields["sensitivity"].default if sensitivity is None else number(sensitivity, "sensitivity")
    return {**step, "scale": quotient_up(float(width), eps)}  # type: ignore[arg-type]


def _with_weight(step: dict[str, Any]) -> dict[str, Any]:
    """The step with its sensitivity multiplied by the largest weight of a client or record."""
    weight, fields = step.pop("largest_weight", None), _parameters(step.get("mech"))
    if weight is None or not fields:
        return step
    if "sensitivity" not in fields or isinstance(step["mech"], Mechanism):
        which = "a mechanism by name with a sensitivity, such as `mech='gauss'`"
        raise UsageError(f"`largest_weight` multiplies the sensitivity of {which}; found {shown(step['mech'])}")
    factor, given = number(weight, "`largest_weight`"), step.get("sensitivity")
    if not factor > 0:
        raise UsageError(f"`largest_weight` must be greater than 0; found {echo(factor)}")
    sensitivity: Any = fields["sensitivity"].default if given is None else number(given, "sensitivity")
    return {**step, "sensitivity": factor * sensitivity}


def _parameters(mech: object) -> dict[str, dataclasses.Field[object]]:
    """The parameters of a mechanism by name; none where there is no such mechanism."""
    if isinstance(mech, str):
        name = "gauss" if fold(mech) in DP_SGD else mech
        mech = registry.mechanism(name) if registry.known("mechanisms", name) else None
    is_class = isinstance(mech, Mechanism) or (isinstance(mech, type) and issubclass(mech, Mechanism))
    return {f.name: f for f in dataclasses.fields(mech)} if is_class else {}  # type: ignore[arg-type]


def plain_question(given: Mapping[str, Any], names: Collection[str]) -> dict[str, Any]:
    """Keywords in the words here, as far as these are among ``names``."""
    question: dict[str, Any] = {}
    # of a training, sigma is a multiple of the sensitivity
    others = {} if "mech" in names else {"noise_multiplier": "sigma", "learning_rate": "lr", "max_grad_norm": "clip"}
    for key, value in given.items():
        word = others.get(key, plain_key(key))
        name = word if word in names and key not in names else key
        if question.get(name) is None:
            question[name] = value
        elif value is not None:
            raise UsageError(f"`{name}` and `{key}` mean the same; give one of them")
    return plain_values(question)


def in_plain_words(verb: Callable[P, T]) -> Callable[P, T]:
    """A verb that takes the keywords of other programs, such as ``epsilon`` and ``batch_size``."""
    parameters = inspect.signature(verb).parameters
    names = parameters.keys()
    first = [name for name, each in parameters.items() if each.kind is inspect.Parameter.POSITIONAL_OR_KEYWORD]
    takes_any = any(each.kind is inspect.Parameter.VAR_KEYWORD for each in parameters.values())
    pair = "; records and targets are one pair, as in train(model, (x, y), eps=3, delta=1e-5)" * ("data" in first)

    @functools.wraps(verb)
    def spoken(*args: P.args, **given: P.kwargs) -> T:
        if len(args) > len(first):
            raise UsageError(
                f"{verb.__name__} takes only {', '.join(first)} without keywords; found {len(args)} values{pair}"
            )
        question = plain_question(given, names)
        for name in question:
            if name not in names and not takes_any:
                advice = elsewhere(name, names) or did_you_mean(name, [*names]) or "."
                raise UsageError(
                    f"{verb.__name__} has no keyword {name!r}{advice} help(wpriv.{verb.__name__}) describes all"
                )
        return verb(*args, **question)

    return spoken


# Processes in words.

EXAMPLE = "gauss sigma=4 n=10 poisson 0.01 + laplace scale=20 n=5"
# keys that are about the whole process
SHARED = ("adjacency", "group")
# keys of the question, which stand beside the words
BESIDE = ("eps", "delta", "tol", "accountant")
# the value of a key that calibrate solves for
UNKNOWN = "?"


@dataclass(frozen=True)
class Sentence:
    """The steps of a process in words, as in a recipe, and the keys that are about all of them."""

    steps: tuple[dict[str, Any], ...]
    shared: dict[str, Any]

    def one_step(self, verb: str) -> dict[str, Any]:
        """The only step, with the shared keys."""
        if len(self.steps) > 1:
            raise UsageError(
                f"{verb} is about one step; found {len(self.steps)} steps. Put the others into a file of `history`"
            )
        return {**self.steps[0], **self.shared}


def is_sentence(text: object) -> bool:
    """Tell whether text describes a process: its first word is a mechanism, or further words have ``key=value``."""
    if not isinstance(text, str) or not text.strip():
        return False
    first, *rest = text.split()
    return first in DP_SGD or registry.known("mechanisms", first) or any("=" in word for word in rest)


def parse(text: str, *, solves: bool = False) -> Sentence:
    """Read a process in words.

    A step begins with its mechanism; then stand key=value, a kind of sampling, perhaps with its rate behind it, and a
    neighbouring relation. Steps are joined by " + ".

    Args:
        solves: whether a value may be ``?``, which is then kept for ``take_unknown``.
    """
    try:
        words = shlex.split(text)
    except ValueError:
        raise UsageError(f"{text[:80]!r} has a quote without its end") from None
    steps: list[dict[str, Any]] = [{}]
    for word in words:
        if word == "+":
            steps.append({})
        else:
            _add(steps[-1], word, text)
    shared: dict[str, Any] = {}
    for step in steps:
        if "mech" not in step:
            raise UsageError(f"{text[:80]!r}: every step begins with a mechanism, as in {EXAMPLE}")
        unknown = [key for key, value in step.items() if value == UNKNOWN]
        if unknown and not solves:
            raise UsageError(f"{text[:80]!r}: {unknown[0]}=? is for calibrate alone, which solves for it; give a value")
        for key in [key for key in step if renamed(step)[key] in SHARED]:
            name, value = renamed(step)[key], step.pop(key)
            if shared.setdefault(name, value) != value:
                raise UsageError(f"{text[:80]!r}: all steps have one {name}; found {shared[name]} and {value}")
    return Sentence(tuple(steps), shared)


def _add(step: dict[str, Any], word: str, text: str) -> None:
    """Add what a word says to a step."""
    key, equals, value = word.partition("=")
    key = key.lstrip("-").replace("-", "_")
    if not equals:
        key, value = _bare(step, word, text)
    fields = _parameters(step.get("mech"))
    key = key if key in fields else key.lower()
    if key not in fields and plain_key(key) in BESIDE:
        noise = ""
        if plain_key(key) in ("eps", "delta"):
            scale = "scale = sensitivity / eps for the noise, or " * (plain_key(key) == "eps" and "scale" in fields)
            noise = f", or write {scale}dp eps0=1 delta0=1e-6 for a release of which a guarantee is known"
        question = f"give `{plain_key(key)}` beside the words"
        raise UsageError(f"{text[:80]!r}: {key} is part of the question; {question}{noise}")
    if key == "param":
        raise UsageError(f"{text[:80]!r}: write {value or 'name=value'} without param=")
    *_, last = re.split("[,;+]", value)
    if value != last and (not last or _is_mechanism(last)):
        raise UsageError(f'{text[:80]!r}: words are separated by blanks, and steps by " + "; found {word[:40]!r}')
    if key in step:
        raise UsageError(
            f"{text[:80]!r}: {key} is given twice in one step; words are a mechanism and key=value, and steps are "
            f'joined by " + "'
        )
    step[key] = value


def _is_mechanism(word: str) -> bool:
    return fold(word) in DP_SGD or registry.known("mechanisms", word)


def _bare(step: dict[str, Any], word: str, text: str) -> tuple[str, str]:
    """The key that a word without "=" gives, and its value."""
    if not word.strip():
        raise UsageError(f"{text[:80]!r} has an empty word in quotes; leave it out")
    if not step:
        if fold(word) not in DP_SGD:
            registry.mechanism(word)  # an unknown name, with a suggestion
        return "mech", word
    if plain("samplings", word) in SAMPLINGS:
        return "sampling", plain("samplings", word)
    if plain("adjacencies", word) in tuple(Adjacency):
        return "adjacency", plain("adjacencies", word)
    if word[0] in "0123456789.?" and next(reversed(step)) == "sampling":
        return "rate", word
    if _is_mechanism(word):
        raise UsageError(f'{text[:80]!r}: a step has one mechanism, and steps are joined by " + "; found {word!r}')
    near = did_you_mean(word, [*SAMPLINGS, *Adjacency, *registry.names("mechanisms")]) or "."
    raise UsageError(
        f'{text[:80]!r}: {word[:40]!r} says nothing here{near} Words are as in "{EXAMPLE}"; steps are joined by " + "'
    )


def with_words(mech: object, keys: Mapping[str, Any], verb: str) -> dict[str, Any]:
    """The keys of one step; where ``mech`` is a sentence, those that it gives take the place of those left out."""
    if not is_sentence(mech) or not isinstance(mech, str) or len(mech.split()) == 1:
        return {"mech": mech, **keys}
    step = _with_plain_keys(parse(mech, solves=verb == "calibrate").one_step(verb))
    for key in step:
        if keys.get(key) is not None:
            raise UsageError(f"{key} is given twice: in {mech[:80]!r}, and as `{key}`")
    return {**keys, **step}


def take_unknown(step: dict[str, Any]) -> str | None:
    """Remove the key whose value is ``?`` from a step for calibrate, and return its name; None where there is none."""
    unknown = [key for key, value in step.items() if isinstance(value, str) and value.strip() == UNKNOWN]
    if not unknown:
        return None
    noise = None if "mech" in unknown else registry.mechanism(plain_values({"mech": step.get("mech")})["mech"]).noise
    solvable = [name for name in (noise, "n", "rate") if name is not None]
    if len(unknown) > 1 or unknown[0] not in solvable:
        wanted, found = ", ".join(f"{name}=?" for name in solvable), " and ".join(f"{key}=?" for key in unknown)
        raise UsageError(f"calibrate solves for one of {wanted}; found {found}. Give the others values")
    del step[unknown[0]]
    return unknown[0]


# Generators of observations as text: ``weibull:shape=0.5,records=50,coordinates=1000``. Drawing is left to the run.

GENERATORS = ("weibull", "normal")
MAX_VALUES = 200_000_000
OBSERVED = (
    "a .npz (distances or gradients) or .csv (columns step,distance; or one gradient a row), "
    "or weibull:shape=0.5,records=50,..."
)


@dataclass(frozen=True)
class Generator:
    """Gradients to draw at random, a fresh set of records at every step.

    Args:
        kind: the distribution of a coordinate.
        shape: the Weibull shape, or the standard deviation of the normal distribution.
        quantile: above 0, the quantile of a step's gradient norms that is its unit.
        clip: 1 clips the gradients to that unit.
    """

    kind: str
    shape: float = 1.0
    records: int = 50
    coordinates: int = 1000
    steps: int = 1
    quantile: float = 0.0
    clip: int = 0
    seed: int = 0


def is_generator(text: str) -> bool:
    """Return whether text names a generator rather than a file."""
    kind, colon, _ = text.partition(":")
    return bool(colon) and (kind in GENERATORS or Path(text).suffix not in (".npz", ".csv"))


def parse_generator(text: str) -> Generator:
    """Parse the text of a generator."""
    kind, given = registry.split(text)
    if kind not in GENERATORS:
        near = did_you_mean(kind, list(GENERATORS)) or "."
        known = f"Known: {', '.join(GENERATORS)}; or give {OBSERVED}"
        raise UsageError(f"no generator of gradients called {kind[:60]!r}{near} {known}")
    defaults = {name: value for name, value in vars(Generator(kind)).items() if name != "kind"}
    values = {**defaults, **registry.typed(kind, given, defaults)}
    if values["clip"] not in (0, 1):
        values["clip"] = -1  # a fraction must not be cut to a valid value
    plan = Generator(kind, **{name: type(defaults[name])(value) for name, value in values.items()})
    is_sound = plan.shape > 0 and plan.records >= 2 and plan.coordinates >= 1 and plan.steps >= 1 and plan.seed >= 0
    is_sound &= 0 <= plan.quantile < 1 and (plan.clip == 0 or (plan.clip == 1 and plan.quantile > 0))
    if not is_sound:
        wanted = "shape > 0, records >= 2, coordinates >= 1, steps >= 1, quantile in [0, 1), seed >= 0"
        raise UsageError(f"{text}: wanted {wanted}, and clip 0 or 1 with a quantile to clip to")
    if plan.records * max(plan.coordinates, plan.records // 2) * plan.steps > MAX_VALUES:
        raise UsageError(f"{text} draws more than {MAX_VALUES:,} values; take fewer steps, records or coordinates")
    return plan


# Claims about a process in words: eps=3,delta=1e-5, or eps=1 (pure DP), mu=1, or rho=0.5 with xi or not.

CLAIM_KEYS = ("eps", "delta", "mu", "fpr", "rho", "xi")
CLAIM_FORMS = (
    "eps=3,delta=1e-5; eps=1 (pure DP); mu=1 (Gaussian DP), with fpr=1e-9 for tests of that rate or more; rho=0.5 "
    "(zCDP); or xi=0.1,rho=0.5"
)
# the notion of a claim by the keys that it gives
_NOTIONS = {
    frozenset({"eps", "delta"}): "approximate-dp",
    frozenset({"eps"}): "approximate-dp",
    frozenset({"mu"}): "gdp",
    frozenset({"mu", "fpr"}): "gdp",
    frozenset({"rho"}): "zcdp",
    frozenset({"xi", "rho"}): "zcdp",
}


@dataclass(frozen=True)
class Claim:
    """A claim to be decided.

    Args:
        notion: approximate-dp, gdp or zcdp. eps, delta: of approximate DP; delta = 0 is pure DP.
        mu: of Gaussian DP. fpr: the smallest error rate of the tests that mu is about; 0 for all tests.
        xi, rho: of zero-concentrated DP, D_alpha <= xi + rho alpha; (xi, 0)-zCDP is pure xi-DP.
    """

    notion: str
    eps: float = 0.0
    delta: float = 0.0
    mu: float = 0.0
    fpr: float = 0.0
    rho: float = 0.0
    xi: float = 0.0

    def __str__(self) -> str:
        if self.notion == "gdp":
            tests = f", for tests with both error rates at least {short(self.fpr)}" if self.fpr else ""
            return f"{short(self.mu)}-GDP{tests}"
        if self.notion == "zcdp":
            return f"({short(self.xi)}, {short(self.rho)})-zCDP" if self.xi else f"{short(self.rho)}-zCDP"
        return f"({short(self.eps)}, {short(self.delta)})-DP"

    def as_dict(self) -> dict[str, str | float]:
        """The claim as plain data, with the keys that were given."""
        concentrated = ("xi", "rho") if self.xi else ("rho",)
        keys = {"approximate-dp": ("eps", "delta"), "gdp": ("mu", "fpr"), "zcdp": concentrated}[self.notion]
        return {"notion": self.notion, **{key: getattr(self, key) for key in keys}}


def parse_claim(text: str) -> Claim:
    """Parse a claim such as ``eps=3,delta=1e-5``."""
    values: dict[str, float] = {}
    for part in text.split(","):
        key, equals, value = part.partition("=")
        key = plain_key(key.strip().lower())
        if not equals or key not in CLAIM_KEYS:
            near = did_you_mean(key, CLAIM_KEYS) or ""
            raise UsageError(f"a claim is one of {CLAIM_FORMS}; found {text[:80]!r}{near}")
        if key in values:
            raise UsageError(f"the claim {text[:80]!r} gives {key} twice; give it once")
        values[key] = number(value.strip(), f"{key} of the claim")
    notion = _NOTIONS.get(frozenset(values))
    if notion is None:
        raise UsageError(f"a claim is one of {CLAIM_FORMS}; found {text[:80]!r}")
    claim = Claim(notion, **values)
    if min(claim.eps, claim.mu, claim.rho, claim.xi) < 0:
        raise UsageError(f"eps, mu, rho and xi of a claim are at least 0; found {text[:80]!r}")
    if not 0 <= claim.delta < 1:
        raise UsageError(f"delta of a claim is at least 0 and below 1; found {echo(claim.delta)}")
    if "fpr" in values and not 0 < claim.fpr <= 0.5:
        raise UsageError(f"fpr of a claim is above 0 and at most 0.5; found {echo(claim.fpr)}")
    return claim
