"""From a document to a checked recipe: panels and ``quick`` overrides merged, every fault at once with its line and column."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from wpriv.config import resolve_train
from wpriv.config.diagnostics import abbreviate, fields, model_faults, name_faults
from wpriv.config.field_types import Claim, Expect, Time
from wpriv.config.schema import BOUND_COLUMNS, MODELS, PROCESS_TABLES, Budget, Compare, Panel
from wpriv.config.sweep_values import expand_values
from wpriv.config.train_schema import Train
from wpriv.config.yaml_document import Document, Fault, Key, refuse
from wpriv.core import registry
from wpriv.core.parameters import type_words
from wpriv.errors import UsageError
from wpriv.hints import did_you_mean

_GROUPS = (("process", "cases"), ("eps", "eps_per_n", "delta"))
_NOT_MERGED = ("kind", "source", "panels", "quick", "expect", "name", "claims", "time")
ALIASES = {"eps": "epsilon"}
_LABELS = ("panel", "case", "accountant", "notion", "claim", "n", "rate", "epsilon", "delta", "loss", "part")


@dataclass(frozen=True)
class Check:
    """A published number to be met, and the panel it belongs to ('' for the whole table)."""

    panel: str
    expect: Expect

    @property
    def where(self) -> dict[str, Any]:
        return {ALIASES.get(k, k): v for k, v in self.expect.where.items()}

    @property
    def columns(self) -> dict[str, float]:
        return {ALIASES.get(k, k): v for k, v in (self.expect.model_extra or {}).items()}


@dataclass(frozen=True)
class Recipe:
    """A recipe ready to run: ``data`` is what it came down to, as plain data; two recipes are the same run where it is equal.

    ``changed`` says that keys were changed after it was read, so that ``time`` may be that of another run.
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


def check(document: Document, *, quick: bool = False) -> Recipe:
    """Checks a document and resolves it, with or without its ``quick`` overrides.

    Raises:
        UsageError: every fault of the recipe, each with line and column.
    """
    data = document.data
    kind = data.get("kind")
    if not isinstance(kind, str) or kind not in MODELS:
        known = ", ".join(MODELS)
        said = (
            f"the key 'kind' is missing; it is one of {known}"
            if "kind" not in data
            else f"kind must be one of {known}; found {kind!r}"
        )
        raise refuse(document.name, document.lines, [Fault(document.place(("kind",)), said)])
    faults = model_faults(document, MODELS[kind]) + name_faults(document)
    if faults:
        raise refuse(document.name, document.lines, faults)
    kinds = {"compare": _compare, "train": _train, "budget": _single, "calibrate": _single, "privatize": _privatize}
    recipe = kinds[kind](document, quick, faults)
    if faults:
        raise refuse(document.name, document.lines, faults)
    return recipe


def _compare(document: Document, quick: bool, faults: list[Fault]) -> Recipe:
    data, panels, checks, resolved = document.data, [], [], []
    names = [panel["name"] for panel in data.get("panels") or []]
    if len(set(names)) < len(names):
        faults.append(Fault(document.place(("panels",)), f"panels need different names; found {', '.join(names)}"))
    for index, name in enumerate(names or [""]):
        merged, origin = _merge(data, index, quick)
        panel = Panel.model_validate({**merged, "name": name or "-"}).model_copy(update={"name": name})
        faults += _panel_faults(document, panel, origin)
        panels.append(panel)
        own = ("panels", index, "expect") if name else ("expect",)
        given = (data["panels"][index] if name else data).get("expect") or []
        resolved.append({**({"name": name} if name else {}), **merged, **({"expect": given} if given else {})})
        checks += [Check(name, _expect(document, (*own, i), panel, faults)) for i, _ in enumerate(given)]
    if names and data.get("expect"):
        faults.append(
            Fault(document.place(("expect",), at_key=True), "with panels, 'expect' stands inside the panel it is about")
        )
    about = {key: data[key] for key in ("claims", "time") if data.get(key)}
    whole = {"kind": "compare", "source": data["source"], **({"panels": resolved} if names else resolved[0]), **about}
    model = Compare.model_validate({"kind": "compare", "source": data["source"], **about})
    found = Recipe(_stem(document.name), "compare", data["source"], whole, tuple(panels), tuple(checks), quick)
    return dataclasses.replace(found, claims=tuple(model.claims), time=model.time)


def _train(document: Document, quick: bool, faults: list[Fault]) -> Recipe:
    data, model = resolve_train.resolve(document, quick, faults)
    columns = (*BOUND_COLUMNS, "sigma", "noise", "n", *resolve_train.results(model.task))
    labels = {"accountant", *(axis.over for axis in model.sweep or [])}
    checks = [
        Check("", _expect_row(document, ("expect", i), columns, labels, faults)) for i in range(len(model.expect))
    ]
    return Recipe(
        _stem(document.name),
        "train",
        model.source,
        data,
        (),
        tuple(checks),
        quick,
        model,
        tuple(model.claims),
        model.time,
    )


def _privatize(document: Document, quick: bool, faults: list[Fault]) -> Recipe:
    return Recipe(_stem(document.name), "privatize", document.data.get("source") or "", document.data)


def _single(document: Document, quick: bool, faults: list[Fault]) -> Recipe:
    kind = document.data["kind"]
    model = MODELS[kind].model_validate(document.data)
    assert isinstance(model, Budget)
    if kind == "budget" and (model.eps is None) == (model.delta is None):
        faults.append(
            Fault(document.place(()), "give either eps or delta: one of them is the question, the other the answer")
        )
    if kind == "calibrate" and len(model.process) > 1:
        faults.append(Fault(document.place(("process",)), f"calibrate solves for one step; found {len(model.process)}"))
    if kind == "calibrate" and (len(model.accountants or ["pld"]) != 1 or model.accountants == ["all"]):
        faults.append(
            Fault(
                document.place(("accountants",)),
                f"calibrate solves by one accountant; found {abbreviate(model.accountants)}",
            )
        )
    return Recipe(_stem(document.name), kind, model.source or "", document.data)


def _merge(data: dict[str, Any], index: int, quick: bool) -> tuple[dict[str, Any], dict[str, Key]]:
    """One panel with everything around it, and where each of its keys was written; later layers win."""
    panel = data["panels"][index] if data.get("panels") else {}
    layers: list[tuple[Key, dict[str, Any]]] = [((), data), (("panels", index), panel)]
    if quick:
        layers += [(("quick",), data.get("quick") or {}), (("panels", index, "quick"), panel.get("quick") or {})]
    merged: dict[str, Any] = {}
    origin: dict[str, Key] = {}
    for path, layer in layers:
        for key, value in layer.items():
            if key in _NOT_MERGED or value is None:
                continue
            for group in _GROUPS:
                for other in group if key in group else ():
                    if other not in layer:
                        merged.pop(other, None)
            merged[key], origin[key] = value, (*path, key)
    return merged, origin


def _panel_faults(document: Document, panel: Panel, origin: dict[str, Key]) -> list[Fault]:
    """What must be there together, and the names that must exist."""
    root: Key = min(origin.values(), key=len)[:-1] if origin else ()

    def at(key: str) -> tuple[int, int]:
        return document.place(origin.get(key, root), at_key=True)

    swept = [axis.over for axis in panel.sweep or []]
    faults: list[Fault] = []
    if len(set(swept)) < len(swept):
        faults.append(Fault(at("sweep"), "each axis of a sweep needs a quantity of its own"))
    if panel.table in PROCESS_TABLES:
        faults += _priced_faults(panel, swept, at)
    elif panel.table in registry.names("tables"):
        faults += _table_faults(panel, swept, at)
    return faults


def _priced_faults(panel: Panel, swept: list[str], at: Callable[[str], tuple[int, int]]) -> list[Fault]:
    """What a table of a process lacks, or has and cannot use."""
    faults: list[Fault] = []
    if (panel.process is None) == (panel.cases is None):
        faults.append(Fault(at("cases"), "give either 'process', a list of steps, or 'cases', several of them by name"))
    if panel.params is not None:
        faults.append(
            Fault(
                at("params"),
                f"'params' means nothing in a {panel.table} table, whose parameters stand in its steps; remove it",
            )
        )
    if panel.table == "bounds":
        asked = [k for k in ("eps", "eps_per_n", "delta") if getattr(panel, k) is not None] + [
            k for k in swept if k in ("eps", "delta")
        ]
        if len(asked) != 1:
            found = " and ".join(asked) or "none"
            faults.append(
                Fault(
                    at("sweep"),
                    f"ask at one eps or at one delta, fixed or swept (eps, eps_per_n, delta); found {found}",
                )
            )
        if panel.accountants is None:
            faults.append(
                Fault(
                    at("accountants"),
                    "the key 'accountants' is missing; it lists who prices the process, as [pld, rdp]",
                )
            )
    else:
        faults += _senseless(panel, ("eps", "eps_per_n", "delta", "accountants", "tol"), at)
    known = sorted({"n", "rate", "eps", "delta"} | _parameters(panel) | _options(panel))
    return faults + _unknown_axes(swept, known, at)


def _table_faults(panel: Panel, swept: list[str], at: Callable[[str], tuple[int, int]]) -> list[Fault]:
    """Keys that a table of its own kind cannot use, parameters it does not have, or that are out of range."""
    keys = ("process", "cases", "adjacency", "bins", "eps", "eps_per_n", "delta", "accountants", "tol")
    own = {f.name: f for f in dataclasses.fields(registry.load("tables", panel.table).Params)}
    faults = _senseless(panel, keys, at) + _unknown_axes(swept, sorted(own), at)
    for key, value in (panel.params or {}).items():
        if key not in own:
            near = did_you_mean(key, list(own)) or f". {panel.table} takes {', '.join(own) or 'no parameters'}"
            faults.append(Fault(at("params"), f"unknown parameter {key[:60]!r}{near}"))
        elif "str" in type_words(own[key]) and not isinstance(value, str):
            faults.append(Fault(at("params"), f"{key} must be text; found {abbreviate(value)}"))
    if faults:
        return faults
    first = {axis.over: expand_values(axis.values)[0] for axis in panel.sweep or []}
    wanting = [
        f.name
        for f in own.values()
        if f.default is dataclasses.MISSING and f.name not in {**(panel.params or {}), **first}
    ]
    if wanting:
        return [Fault(at("params"), f"{panel.table} needs {', '.join(wanting)} under 'params'")]
    try:
        registry.load("tables", panel.table).Params(**{**(panel.params or {}), **first})
    except UsageError as error:
        return [Fault(at("params"), str(error))]
    return []


def _senseless(panel: Panel, keys: tuple[str, ...], at: Callable[[str], tuple[int, int]]) -> list[Fault]:
    return [
        Fault(at(k), f"'{k}' means nothing in a {panel.table} table; remove it")
        for k in keys
        if getattr(panel, k) is not None
    ]


def _unknown_axes(swept: list[str], known: list[str], at: Callable[[str], tuple[int, int]]) -> list[Fault]:
    wrong = [over for over in swept if over not in known]
    told = ", ".join(known) or "none"
    return [Fault(at("sweep"), f"cannot sweep over {w!r}{did_you_mean(w, known)}. Known: {told}") for w in wrong]


def _parameters(panel: Panel) -> set[str]:
    """The parameters of all mechanisms of a panel, or the parameters and labels of a table of its own kind."""
    if panel.table not in PROCESS_TABLES:
        table = registry.load("tables", panel.table)
        return {*(f.name for f in dataclasses.fields(table.Params)), *getattr(table, "LABELS", ())}
    steps = [*(panel.process or []), *(step for steps in (panel.cases or {}).values() for step in steps)]
    return {name for step in steps for name in fields(step.mech)}


def _options(panel: Panel) -> set[str]:
    """The numeric options of all accountants of a panel."""
    found: set[str] = set()
    for word in panel.accountants or []:
        if word.partition(":")[0] in registry.names("accountants"):
            module = registry.load("accountants", word.partition(":")[0])
            found |= {name for name, default in registry.options(module).items() if not isinstance(default, str)}
    return found


def _expect(document: Document, path: Key, panel: Panel, faults: list[Fault]) -> Expect:
    columns = PROCESS_TABLES.get(panel.table) or registry.load("tables", panel.table).COLUMNS
    return _expect_row(document, path, columns, {*_LABELS, *ALIASES, *_parameters(panel), *_options(panel)}, faults)


def _expect_row(document: Document, path: Key, known: tuple[str, ...], labels: set[str], faults: list[Fault]) -> Expect:
    """One expected row, its columns among ``known`` and what tells it apart among ``labels``."""
    expect = Expect.model_validate(document.at(path))
    columns = expect.model_extra or {}
    for key, value in columns.items():
        if ALIASES.get(key, key) not in known:
            said = f"unknown key {key!r}{did_you_mean(key, [*known, *Expect.model_fields])}"
            faults.append(Fault(document.place((*path, key), at_key=True), said))
        elif isinstance(value, bool) or not isinstance(value, (int, float)):
            faults.append(Fault(document.place((*path, key)), f"{key} must be a number; found {abbreviate(value)}"))
    if not columns:
        faults.append(
            Fault(document.place(path), f"an expect row needs a number to meet, under one of {', '.join(known)}")
        )
    for key in expect.where:
        if key not in labels:
            said = f"unknown column {key!r}{did_you_mean(key, sorted(labels))}"
            faults.append(Fault(document.place((*path, "where", key), at_key=True), said))
    return expect


def _stem(name: str) -> str:
    return name.replace("\\", "/").rpartition("/")[2].rpartition(".")[0] or name
