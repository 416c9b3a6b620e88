"""What can be named on a command line or in a recipe: plug-ins and words, each with what it is and its parameters.

``wpriv list``, the completion of shells, help, and the reference pages are made of it. Names and first sentences are
found without importing a plug-in. Texts name arguments in backticks, as error messages do (see ``wpriv.errors``).
"""

from __future__ import annotations

import ast
import dataclasses
import importlib.util
import inspect
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from wpriv.config import shipped
from wpriv.core import registry
from wpriv.errors import EXIT_CODES, MissingResource, Unsupported, UsageError
from wpriv.hints import SYNONYMS, fold, plain, plain_key
from wpriv.spec import KEYS

if TYPE_CHECKING:
    from wpriv.core.pair_distances import Observed
    from wpriv.core.process import Process

_TYPES = {
    "Mapping": "mapping",
    "Sequence": "list",
    "int": "whole number",
    "float": "number",
    "bool": "true or false",
    "str": "text",
}
# references of the glossary to other entries, and to pages, which are named
_REFERENCE = re.compile(r"\{term\}`([^`<]*[^`< ])(?: <[^`]*)?`")
_PAGE = re.compile(r"\[([^\]]*)\]\(([^)#]*)[^)]*\)")
# samplings of one step by the letters that tables of accountants show
LETTERS = {"none": "N", "poisson": "P", "fixed": "F"}


@dataclass(frozen=True)
class Parameter:
    """A parameter of a plug-in or an option of an accountant: the values it takes, its default, and its meaning."""

    name: str
    value: str
    default: str
    meaning: str

    def typed(self, kind: str) -> str:
        """The name as it is typed: a parameter of a mechanism has a flag of its own, or is given by --param."""
        if kind != "mechanisms":
            return self.name
        return f"--{self.name}" if self.name in KEYS else f"--param {self.name}"

    @property
    def sentence(self) -> str:
        """The meaning, with the default."""
        if self.default in ("", "required"):
            return self.meaning + "; required" * bool(self.default)
        return f"{self.meaning}; default {self.default}"


@dataclass(frozen=True)
class Entry:
    """One name with all that is known of it."""

    kind: str
    name: str
    about: str
    parameters: list[Parameter]
    facts: dict[str, str]


def _words(kind: str) -> Mapping[str, str]:
    """The names of a kind that are no plug-ins, with their meanings; what they stand in is loaded when asked for."""
    if kind == "samplings":
        from wpriv.core.kinds import SAMPLINGS

        return SAMPLINGS
    if kind == "adjacencies":
        from wpriv.core.kinds import Adjacency

        return {str(relation): relation.meaning for relation in Adjacency}
    if kind == "claims":
        from wpriv.core.guarantee import CLAIMS, STATISTICAL

        return {**CLAIMS, STATISTICAL: "a lower bound of eps at a stated confidence, from an audit"}
    if kind == "premises":
        from wpriv.checks.premises import FIELDS

        listed = {name: f" ({', '.join(form.words)})" if form.words else "" for name, form in FIELDS.items()}
        return {name: f"{form.about}{listed[name]}" for name, form in FIELDS.items()}
    if kind == "recipes":
        from wpriv.config import recipe_files

        return {row.name: f"{row.kind}: {row.source}" for row in recipe_files.listing()}
    if kind == "exit-codes":
        return {str(code): f"{word}: {text}" for code, (word, text) in EXIT_CODES.items()}
    return _flags() if kind == "flags" else _terms()


def _flags() -> dict[str, str]:
    """Flags of a step and its question, and the parameters of mechanisms that have none."""
    rows = {name.replace("_", "-"): f"`{name}`: {about['flag']}" for name, about in KEYS.items()}
    for mech in registry.names("mechanisms"):
        for name, text in parameter_names("mechanisms", mech).items():
            rows.setdefault(name, f"`param` {name}=VALUE, of {mech}: {text}")
    return rows


def _terms() -> dict[str, str]:
    """The words of the glossary, from the wheel or the source tree; none where it is missing."""
    package = Path(__file__).resolve().parents[1]
    files = (package / "glossary.md", package.parent / "docs" / "glossary.md")
    text = next((file.read_text(encoding="utf-8") for file in files if file.is_file()), "")
    rows: dict[str, str] = {}
    for block in text.partition("```{glossary}")[2].partition("\n```")[0].strip("\n").split("\n\n"):
        words = [line for line in block.splitlines() if line[:1].strip()]
        about = " ".join(line.strip() for line in block.splitlines() if not line[:1].strip())
        about = re.sub("[`$]", "", _PAGE.sub(r"\1 (docs/\2)", _REFERENCE.sub(r"\1", about)))
        rows |= {fold(word).replace(" ", "-"): about for word in words}
    return rows


# each kind with what its names are, and where they are given
KINDS = {
    "mechanisms": "what is released: --mech, or the key mech of a step",
    "accountants": "methods of accounting: --accountant, or the key accountants",
    "samplings": "how records are drawn: --sampling, or the key sampling",
    "adjacencies": "which data sets are neighbours: --adjacency, or the key adjacency",
    "claims": "what a printed number is worth: the key claim of --json",
    "tasks": "what is trained: the key task of recipes of kind train",
    "models": "networks: the key model of such recipes",
    "data": "data sets: the key data, and wpriv data",
    "tables": "tables of recipes of kind compare: the key table",
    "figures": "figures: --figure, or the key figure",
    "readers": "programs whose runs `wpriv check` reads",
    "premises": "premises of a claim: --premise, or the keys of recipes of kind check",
    "recipes": "shipped recipes: the argument RECIPE",
    "flags": "flags, keys and parameters: --sigma, or the key sigma",
    "terms": "words of the glossary: wpriv help WORD",
    "exit-codes": "how a command ends: $?",
}
# the kinds that are no plug-ins
_WORDS = ("samplings", "adjacencies", "claims", "premises", "recipes", "flags", "terms", "exit-codes")
_SINGULARS = {"adjacencies": "adjacency", "data": "data-set"}


def singular(kind: str) -> str:
    """Return the word for one of a kind: mechanism, adjacency, data-set."""
    return _SINGULARS.get(kind, kind.removesuffix("s"))


def kind_of(word: str) -> str | None:
    """Return the kind that a word names, in the singular or the plural; None where it names none."""
    folded = fold(word).replace(" ", "-")
    return next((kind for kind in KINDS if folded in (kind, singular(kind), f"{singular(kind)}s")), None)


def names(kind: str) -> list[str]:
    """Return the names of a kind."""
    if kind == "recipes":
        return list(shipped())
    return list(_words(kind)) if kind in _WORDS else registry.names(kind)


def about(kind: str) -> dict[str, str]:
    """Return the names of a kind, each with one sentence."""
    if kind in _WORDS:
        return dict(_words(kind))
    return {name: _first_sentence(kind, name) for name in registry.names(kind)}


def entry(kind: str, name: str) -> Entry:
    """Return all that is known of a name."""
    about_it = _words(kind)[name] if kind in _WORDS else _first_sentence(kind, name)
    others = {"also called": ", ".join(SYNONYMS[kind][name].split())} if name in SYNONYMS.get(kind, {}) else {}
    return Entry(kind, name, about_it, parameters(kind, name), others | facts(kind, name))


def _first_sentence(kind: str, name: str) -> str:
    """The first paragraph of a plug-in's documentation on one line; its module is parsed, not imported."""
    module = registry.module_of(kind, name)
    found = None if module is None else importlib.util.find_spec(module)
    if kind == "data" or found is None or found.origin is None:
        plugin = registry.load(kind, name)
        text = getattr(plugin, "ABOUT", "") or getattr(plugin, "about", "") or inspect.getdoc(plugin) or ""
    else:
        text = ast.get_docstring(ast.parse(Path(found.origin).read_text(encoding="utf-8"))) or ""
    return " ".join(text.partition("\n\n")[0].split())


def places(name: str) -> list[tuple[str, str]]:
    """Return the kinds that have a name, each with the name as it is known there; figures are last."""
    words = {kind: plain(kind, name) if kind in SYNONYMS else fold(name) for kind in KINDS}
    words["flags"], words["terms"] = fold(plain_key(name.lstrip("-"))), fold(name).replace(" ", "-")
    kinds = sorted(KINDS, key=lambda kind: kind == "figures")
    return [(kind, each) for kind in kinds for each in names(kind) if each == words[kind]]


def parameters(kind: str, name: str) -> list[Parameter]:
    """Return the parameters of a plug-in, or the options of an accountant or a task."""
    if kind == "accountants":
        options = registry.options(registry.load(kind, name))
        return [
            Parameter(
                key,
                "text" if isinstance(value, str) else "number",
                _default(value),
                f"after the name, as in {name}:{key}={_default(value)}",
            )
            for key, value in options.items()
        ]
    if kind == "tasks":
        schema = registry.load(kind, name).TASK.options.model_json_schema()
        required = schema.get("required", ())
        return [
            Parameter(
                key,
                "key of options",
                "required" if key in required else _default(value.get("default")),
                value.get("description", ""),
            )
            for key, value in schema["properties"].items()
        ]
    if kind not in ("mechanisms", "models", "data", "tables"):
        return []
    plugin = registry.mechanism(name) if kind == "mechanisms" else registry.load(kind, name).Params
    fields = dataclasses.fields(plugin)
    return [Parameter(f.name, _values(f), _default(f.default), f.metadata.get("help", "")) for f in fields]


def parameter_names(kind: str, name: str) -> dict[str, str]:
    """The parameters of a plug-in without a flag of their own; a mechanism's module is parsed, not imported."""
    if not registry.known(kind, name):
        return {}
    module = registry.module_of(kind, name) if kind == "mechanisms" else None
    found = None if module is None else importlib.util.find_spec(module)
    if found is None or found.origin is None:
        return {each.name: each.meaning for each in parameters(kind, name)}
    nodes = ast.walk(ast.parse(Path(found.origin).read_text(encoding="utf-8")))
    fields = [
        (node.target.id, node.value.args[0])
        for node in nodes
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)
        if isinstance(node.value, ast.Call) and ast.unparse(node.value.func) == "parameter"
    ]
    return {name: str(getattr(text, "value", "")) for name, text in fields if name not in KEYS}


def _values(field: dataclasses.Field[Any]) -> str:
    from wpriv.core.parameters import type_words

    if choices := field.metadata.get("choices"):
        *first, last = choices
        return f"{', '.join(first)} or {last}" if first else last
    word = next((_TYPES[name] for name in _TYPES if name in type_words(field)), "text")
    for key, phrase in (("minimum", "at least"), ("exclusive_minimum", "above")):
        if field.metadata.get(key) is not None:
            word += f" {phrase} {field.metadata[key]:g}"
    return word


def _default(value: object) -> str:
    if value is dataclasses.MISSING:
        return "required"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return f"{value:g}"
    return "" if value in (None, "", []) else str(value)


def facts(kind: str, name: str) -> dict[str, str]:
    """Return what else is known of a name: source, claim, which accountants answer it."""
    if kind == "mechanisms":
        cls = registry.mechanism(name)
        about = {"source": cls.source}
        if (mechanism := example(name)) is not None:
            covered: dict[str, list[str]] = {}
            for accountant in registry.names("accountants"):
                covered.setdefault(letters(accountant, mechanism), []).append(accountant)
            covered.pop("-", None)
            about["accountants"] = "; ".join(f"{_samplings_of(key)}: {', '.join(row)}" for key, row in covered.items())
        return about
    if kind == "accountants":
        module = registry.load(kind, name)
        return {"claim": module.CLAIM, "notion": module.NOTION, "source": module.SOURCE, "formula": module.EXPLAIN}
    if kind == "tasks":
        task = registry.load(kind, name).TASK
        files = [*task.files, *(f"{file} (figure {figure})" for file, figure in task.figures.items())]
        return {"measures": ", ".join(dict.fromkeys(task.results)), "leaves": ", ".join(files) or "nothing more"}
    if kind == "data":
        return {"files": registry.load(kind, name).GET}
    if kind == "tables":
        return {"numeric columns": ", ".join(registry.load(kind, name).COLUMNS)}
    return {"source": registry.load(kind, name).SOURCE} if kind == "models" else {}


# Which accountants answer which mechanism, tried on an example.


def example(name: str) -> Any:
    """Return a mechanism at the parameters of its ``example``; None where it has none, as where it reads a file."""
    cls = registry.mechanism(name)
    values = dict(cls.example)
    for field in dataclasses.fields(cls):
        if field.default is dataclasses.MISSING and field.name not in values:
            values[field.name] = field.metadata["minimum"] or 1
    try:
        return cls(**values)
    except (UsageError, MissingResource):
        return None


def letters(accountant: str, mechanism: Any) -> str:
    """Return the letters of the samplings for which an accountant answers, perhaps only with observed distances."""
    from wpriv.core.pair_distances import of_distances

    for observed, note in ((None, ""), (of_distances([0.5, 1.0, 1.5], coordinates=10), " observed")):
        processes = {letter: process(mechanism, kind, observed=observed) for kind, letter in LETTERS.items()}
        if found := "".join(letter for letter, each in processes.items() if _answers(accountant, each)):
            return found + note
    return "-"


def _samplings_of(found: str) -> str:
    """The samplings that letters such as "NP observed" stand for."""
    samplings, _, observed = found.partition(" ")
    kinds = ", ".join(kind for kind, letter in LETTERS.items() if letter in samplings)
    return f"sampling {kinds}{' (with observed distances)' * bool(observed)}"


def process(mechanism: Any, sampling: str, adjacency: str = "", observed: Observed | None = None) -> Process | None:
    """Return a small process of a mechanism under a sampling, or None where there is no proven pair for it."""
    from wpriv.core.kinds import PASSES, Sampling
    from wpriv.core.process import Process, Step

    n, rate = 10 if sampling in PASSES else 2, 1.0 if sampling == "none" else 0.1
    try:
        return Process((Step(mechanism, n, Sampling(sampling, rate), observed),), adjacency)
    except (Unsupported, UsageError):
        return None


def _answers(accountant: str, process: Process | None) -> bool:
    if process is None:
        return False
    try:
        delta = registry.load("accountants", accountant).account(process).at(eps=1.0).delta
    except Unsupported:
        return False
    return math.isfinite(delta.estimate)
