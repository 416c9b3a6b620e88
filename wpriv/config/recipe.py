"""Recipes: documents that have been resolved and validated, ready to run.

Validation is one pass over form, names, parameters and combinations, in which nothing is solved, drawn or composed. The
contents of input files (histograms, observations, data sets) are validated by the run that reads them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from wpriv.config import resolve as resolve_train
from wpriv.config import validate_train
from wpriv.config.document import Diagnostic, Document, Key, form_diagnostics, refusal, rule_diagnostics, unknown_name
from wpriv.config.field_types import Claim, Expect, Printed, Time, expand_values
from wpriv.config.plain_words import plain_values, renamed
from wpriv.config.resolve import Resolved, panel, resolve
from wpriv.config.schema import MODELS, PROCESS_TABLES, Compare, Panel
from wpriv.config.train_schema import Train
from wpriv.config.validate_process import ALIASES, adjacencies, comparison_diagnostics, step_diagnostics
from wpriv.core import registry
from wpriv.core.kinds import STANDARD_ADJACENCIES
from wpriv.errors import UsageError
from wpriv.hints import plain_key
from wpriv.spec import SCHEDULE


@dataclass(frozen=True)
class Check:
    """An expected number and its panel ('' for the whole table); ``procedure``: another one than the paper's."""

    panel: str
    expect: Expect
    procedure: str = ""

    @property
    def where(self) -> dict[str, object]:
        """The values of columns that select the rows the number is about."""
        return {ALIASES.get(k, k): v for k, v in self.expect.where.items()}

    @property
    def columns(self) -> dict[str, float]:
        """The expected numbers by column."""
        return {ALIASES.get(k, k): v for k, v in (self.expect.model_extra or {}).items()}


@dataclass(frozen=True)
class Recipe:
    """A valid recipe.

    Args:
        name: of its file, without folder and suffix.
        data: the recipe as resolved, as plain data; recipes with equal data are the same run.
        panels: of a comparison. checks: expected numbers. training: the model of kind train.
        quick: whether ``quick`` overrides were applied.
        claims: statements of the source that do not hold here. time: how long the recipe takes.
        printed: settings that the source prints.
        changed: whether keys were changed after it was read, so that ``time`` may be that of another run.
    """

    name: str
    kind: str
    source: str
    data: dict[str, Any]
    panels: tuple[Panel, ...] = ()
    checks: tuple[Check, ...] = ()
    quick: bool = False
    training: Train | None = None
    claims: tuple[Claim, ...] = ()
    time: Time | None = None
    changed: bool = False
    printed: Printed | None = None

    @property
    def train(self) -> Train:
        """The model of a recipe of kind train."""
        assert self.training is not None
        return self.training

    @property
    def default_out(self) -> Path:
        """The folder of its results where none is named; a quick run, whose table is another one, has its own."""
        return Path("results") / (f"{self.name}-quick" if self.quick else self.name)


def check(document: Document, *, quick: bool = False, folder: Path | None = None) -> Recipe:
    """Resolve and validate a document, with or without its ``quick`` overrides.

    Args:
        folder: of the recipe, which files that mechanisms read are named relative to.
    Raises:
        UsageError: the recipe is faulty; the message lists every fault with its line and column.
        MissingResource: it is sound, but files of observations that it names do not exist.
    """
    document = plain_document(document)
    resolved = resolve(document, quick=quick, folder=folder)
    if diagnostics := validate(resolved):
        raise refusal(document, diagnostics)
    name = document.name.replace("\\", "/").rpartition("/")[2].rpartition(".")[0] or document.name
    kind, written = document.data["kind"], document.data
    if kind not in ("compare", "train"):
        time = None if written.get("time") is None else Time.model_validate(written["time"])
        return Recipe(name, kind, written.get("source") or "", written, quick=quick, time=time)
    panels: tuple[Panel, ...] = ()
    model: Compare | Train
    if kind == "train":
        model = Train.model_validate(resolved.parts[0].data)
        data, rows = resolve_train.written_out(model), [("", row) for row in model.expect]
    else:
        panels = tuple(panel(part) for part in resolved.parts)
        about = {key: written[key] for key in ("claims", "printed", "procedure", "time") if written.get(key)}
        head = {"kind": "compare", "source": written["source"]}
        model = Compare.model_validate({**head, **about})
        several = bool(written.get("panels"))
        merged = {"panels": [part.data for part in resolved.parts]} if several else resolved.parts[0].data
        data, rows = {**head, **merged, **about}, [(each.name, row) for each in panels for row in each.expect]
    checks = tuple(Check(place, row, row.procedure or model.procedure or "") for place, row in rows)
    training = model if isinstance(model, Train) else None
    about_it = tuple(model.claims), model.time
    return Recipe(name, kind, model.source, data, panels, checks, quick, training, *about_it, printed=model.printed)


# keys whose value is the name of a plug-in: the folder, and names that are no plug-ins
_NAMED: dict[str, tuple[str, tuple[str, ...]]] = {"figure": ("figures", ()), "table": ("tables", tuple(PROCESS_TABLES))}


def validate(resolved: Resolved) -> list[Diagnostic]:
    """Return all that is wrong with a recipe, sorted by line and column; an empty list for a sound recipe."""
    document = resolved.document
    kind, known = document.data.get("kind"), ", ".join(MODELS)
    if "kind" not in document.data:
        return [document.diagnostic(("kind",), f"the key 'kind' is missing; it is one of {known}")]
    if not isinstance(kind, str) or kind not in MODELS:
        return [document.diagnostic(("kind",), f"kind must be one of {known}; found {kind!r}")]
    form = form_diagnostics(document, MODELS[kind])
    # the premises of a check are read where they are judged, and a release has no plug-ins
    names = [] if kind in ("check", "release") else _name_diagnostics(document)
    combinations: list[Diagnostic] = []
    if not form and kind == "train":
        combinations = validate_train.diagnostics(resolved)
    elif not form and kind == "compare":
        combinations = comparison_diagnostics(resolved, names_known=not names)
        combinations += rule_diagnostics(document, MODELS[kind].model_validate(document.data))
    elif not form:
        combinations = list(rule_diagnostics(document, MODELS[kind].model_validate(document.data)))
    return sorted({*form, *names, *combinations})


def _name_diagnostics(document: Document) -> list[Diagnostic]:
    """Steps that cannot be built, and names of accountants, figures, tables and adjacencies that do not exist."""
    values = {path: document.at(path) for path in document.values}
    steps = {path: value for path, value in values.items() if isinstance(value, dict) and is_step(path)}
    swept, diagnostics = dict(_swept(document)), []
    for path, step in steps.items():
        diagnostics += step_diagnostics(document, path, step, swept, document.data["kind"] == "calibrate")
    known = sorted(
        {*STANDARD_ADJACENCIES, *(name for step in steps.values() for name in adjacencies(step.get("mech")))}
    )
    for path, value in values.items():
        if not isinstance(value, str) or not path:
            continue
        if path[-1] == "adjacency" and value not in known:
            diagnostics.append(document.diagnostic(path, unknown_name("adjacency", value, known)))
        elif path[-2:-1] == ("accountants",):
            diagnostics += _accountant(document, path, value)
        elif path[-1] in _NAMED:
            folder, others = _NAMED[str(path[-1])]
            names = [*others, *registry.names(folder)]
            if value not in names:
                diagnostics.append(document.diagnostic(path, unknown_name(folder[:-1], value, names)))
    return diagnostics


def _swept(document: Document) -> Iterator[tuple[str, float]]:
    """The quantities that sweeps anywhere in a document vary, each with its first value; 1 for faulty ones."""
    for path in document.values:
        if path[-1:] == ("over",) and "sweep" in path[-3:-1] and isinstance(document.at(path), str):
            try:
                first = expand_values(document.at((*path[:-1], "values")))[0]
            except (ValueError, TypeError, LookupError):
                first = 1
            yield document.at(path), first


def _accountant(document: Document, path: Key, word: str) -> list[Diagnostic]:
    name, colon, _ = word.partition(":")
    known = registry.names("accountants")
    if word == "all":
        return []
    if name not in known:
        return [document.diagnostic(path, unknown_name("accountant", name, ["all", *known]))]
    try:
        registry.accountant(word if colon else name)
    except UsageError as error:
        return [document.diagnostic(path, str(error))]
    return []


# Recipes in the words of other programs, put into the words here, with every key and value at its own place.

QUESTION = ("eps", "delta", "adjacency")
TRAINING = ("batch", "epochs")
# quantities of a sweep that are keys of a step or of the question
SWEPT = (*QUESTION, *SCHEDULE)


def plain_document(document: Document) -> Document:
    """The document with synonyms as eps, batch and gauss; a key beside its synonym is left to the schema."""
    names: dict[Key, str] = {}

    def walk(path: Key, value: object) -> object:
        if isinstance(value, list):
            return [walk((*path, index), item) for index, item in enumerate(value)]
        if not isinstance(value, dict):
            return value
        here: Mapping[str, str] = _names(path, value, document.data.get("kind"))
        names.update({(*path, key): name for key, name in here.items() if name != key})
        plain: dict[str, Any] = {here.get(key) or key: walk((*path, key), item) for key, item in value.items()}
        if own_sweeps and "sweep" in path[-2:]:
            over = plain_key(str(plain.get("over")))
            return {**plain, "over": over} if over in SWEPT else plain
        try:
            return _plain_values(path, plain)
        except UsageError as error:
            raise refusal(document, [document.diagnostic(path, str(error))]) from None

    # tables of other kinds have parameters of any name
    tables = [document.at(path) for path in document.values if path[-1:] == ("table",)]
    own_sweeps = document.data.get("kind") == "compare" and set(map(str, tables)) <= PROCESS_TABLES.keys()
    data: Any = walk((), document.data)

    def place(path: Key) -> Key:
        return tuple(names.get(path[: index + 1], part) for index, part in enumerate(path))

    keys, values = ({place(path): at for path, at in places.items()} for places in (document.keys, document.values))
    return replace(document, data=data, keys=keys, values=values)


def plain_path(path: str) -> str:
    """The dotted path of a key of a training in the words here: ``privacy.epsilon`` is privacy.eps."""
    *around, key = path.split(".")
    known = QUESTION if around == ["privacy"] else TRAINING if not around else ()
    if around == ["privacy"] and key == "noise_multiplier":
        key = "sigma"
    return ".".join([*around, plain_key(key) if plain_key(key) in known else key])


def is_step(path: Key) -> bool:
    """Tell whether the value at a path is a step of a process or of a case."""
    return path[-2:-1] == ("process",) or path[-3:-2] == ("cases",)


def _names(path: Key, value: Mapping[str, object], kind: object) -> dict[str, str]:
    """The keys of a mapping that are synonyms, with their names here."""
    if is_step(path):
        try:
            return renamed(value)
        except UsageError:
            return {}
    known: tuple[str, ...] = ()
    if path[-1:] == ("privacy",):
        known = QUESTION
    elif path in ((), ("quick",)) or path[-2:-1] == ("panels",) or path[:1] + path[-1:] == ("panels", "quick"):
        known = TRAINING if kind == "train" else QUESTION
    elif path[-2:-1] == ("published",):
        known = QUESTION
    names = {key: plain_key(key) for key in value if plain_key(key) in known and plain_key(key) not in value}
    if path[-1:] == ("privacy",) and "noise_multiplier" in value and "sigma" not in value:
        names["noise_multiplier"] = "sigma"  # which is a multiple of the sensitivity there
    return names


def _plain_values(path: Key, value: dict[str, Any]) -> dict[str, Any]:
    """The values of a mapping in the words here, where they are names of something."""
    if is_step(path) or path[-1:] == ("privacy",):
        return plain_values(value)
    if isinstance(value.get("accountants"), list):
        texts = [registry.plain_accountant(text) if isinstance(text, str) else text for text in value["accountants"]]
        value = {**value, "accountants": texts}
    if isinstance(value.get("adjacency"), str):
        value = {**value, "adjacency": plain_values({"adjacency": value["adjacency"]})["adjacency"]}
    return value
