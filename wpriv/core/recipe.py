"""From a document to a checked recipe: panels and ``quick`` overrides merged, every fault at once with its line and column."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

from wpriv.core import registry, training
from wpriv.core.document import Document, Fault, Key, refuse
from wpriv.core.faults import model_faults, shown, unknown
from wpriv.core.process import ADJACENCIES, type_words
from wpriv.core.schema import MODELS, Budget, Expect, Panel, Step, Train
from wpriv.errors import UsageError

_GROUPS = (("process", "cases"), ("eps", "eps_per_n", "delta"))
_NOT_MERGED = ("kind", "source", "panels", "quick", "expect", "name")
ALIASES = {"eps": "epsilon"}
BOUND_COLUMNS = tuple(f"{name}{end}" for name in ("epsilon", "delta") for end in ("", "_lower", "_upper", "_estimate"))
COLUMNS = {
    "bounds": BOUND_COLUMNS,
    "class": ("mean", "variance", "third", "infinity"),
    "loss": ("mass", "density", "class_density", "infinity"),
    "claims": ("published", "exact", "ratio"),
    "training": (*BOUND_COLUMNS, "sigma", "n"),
}
_LABELS = ("panel", "case", "accountant", "notion", "claim", "n", "rate", "epsilon", "delta", "loss", "part", "proposition", "verdict")


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
    """A recipe ready to run: ``data`` is what it came down to, as plain data; two recipes are the same run where it is equal."""

    name: str
    kind: str
    source: str
    data: dict[str, Any]
    panels: tuple[Panel, ...] = ()
    checks: tuple[Check, ...] = ()
    quick: bool = False
    training: Train | None = None


def check(document: Document, *, quick: bool = False) -> Recipe:
    """Checks a document and resolves it, with or without its ``quick`` overrides.

    Raises:
        UsageError: every fault of the recipe, each with line and column.
    """
    data = document.data
    kind = data.get("kind")
    if not isinstance(kind, str) or kind not in MODELS:
        known = ", ".join(MODELS)
        said = f"the key 'kind' is missing; it is one of {known}" if "kind" not in data else f"kind must be one of {known}; found {kind!r}"
        raise refuse(document.name, document.lines, [Fault(document.place(("kind",)), said)])
    faults = model_faults(document, MODELS[kind]) + _name_faults(document)
    if faults:
        raise refuse(document.name, document.lines, faults)
    kinds = {"compare": _compare, "train": _train, "budget": _single, "calibrate": _single}
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
        faults.append(Fault(document.place(("expect",), at_key=True), "with panels, 'expect' stands inside the panel it is about"))
    whole = {"kind": "compare", "source": data["source"], **({"panels": resolved} if names else resolved[0])}
    return Recipe(_stem(document.name), "compare", data["source"], whole, tuple(panels), tuple(checks), quick)


def _train(document: Document, quick: bool, faults: list[Fault]) -> Recipe:
    data, model = training.resolve(document, quick, faults)
    results = (*COLUMNS["training"], *training.results(model.task))
    checks = [Check("", _expect_row(document, ("expect", i), results, {"accountant"}, faults)) for i in range(len(model.expect))]
    return Recipe(_stem(document.name), "train", model.source, data, (), tuple(checks), quick, model)


def _single(document: Document, quick: bool, faults: list[Fault]) -> Recipe:
    kind = document.data["kind"]
    model = MODELS[kind].model_validate(document.data)
    assert isinstance(model, Budget)
    if kind == "budget" and (model.eps is None) == (model.delta is None):
        faults.append(Fault(document.place(()), "give either eps or delta: one of them is the question, the other the answer"))
    if kind == "calibrate" and len(model.process) > 1:
        faults.append(Fault(document.place(("process",)), f"calibrate solves for one step; found {len(model.process)}"))
    if kind == "calibrate" and (len(model.accountants or ["pld"]) != 1 or model.accountants == ["all"]):
        faults.append(Fault(document.place(("accountants",)), f"calibrate solves by one accountant; found {shown(model.accountants)}"))
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

    faults: list[Fault] = []
    if panel.table == "claims":
        senseless = [k for k in ("process", "cases", "sweep", "bins", "adjacency") if getattr(panel, k) is not None]
        faults += [Fault(at(k), f"'{k}' means nothing in a claims table, whose inputs are its own; remove it") for k in senseless]
    elif (panel.process is None) == (panel.cases is None):
        faults.append(Fault(at("cases"), "give either 'process', a list of steps, or 'cases', several of them by name"))
    swept = [axis.over for axis in panel.sweep or []]
    if len(set(swept)) < len(swept):
        faults.append(Fault(at("sweep"), "each axis of a sweep needs a quantity of its own"))
    if panel.table == "bounds":
        asked = [k for k in ("eps", "eps_per_n", "delta") if getattr(panel, k) is not None] + [k for k in swept if k in ("eps", "delta")]
        if len(asked) != 1:
            found = " and ".join(asked) or "none"
            faults.append(Fault(at("sweep"), f"ask at one eps or at one delta, fixed or swept (eps, eps_per_n, delta); found {found}"))
        if panel.accountants is None:
            faults.append(Fault(at("accountants"), "the key 'accountants' is missing; it lists who prices the process, as [pld, rdp]"))
    else:
        senseless = [k for k in ("eps", "eps_per_n", "delta", "accountants", "tol") if getattr(panel, k) is not None]
        faults += [Fault(at(k), f"'{k}' means nothing in a {panel.table} table; remove it") for k in senseless]
    known = sorted({"n", "rate", "eps", "delta"} | _parameters(panel) | _options(panel))
    wrong = [over for over in swept if over not in known]
    faults += [Fault(at("sweep"), f"cannot sweep over {w!r}{registry.did_you_mean(w, known)}. Known: {', '.join(known)}") for w in wrong]
    return faults


def _parameters(panel: Panel) -> set[str]:
    """The parameters of all mechanisms of a panel."""
    steps = [*(panel.process or []), *(step for steps in (panel.cases or {}).values() for step in steps)]
    return {name for step in steps for name in _fields(step.mech)}


def _options(panel: Panel) -> set[str]:
    """The numeric options of all accountants of a panel."""
    found: set[str] = set()
    for word in panel.accountants or []:
        if word.partition(":")[0] in registry.names("accountants"):
            module = registry.load("accountants", word.partition(":")[0])
            found |= {name for name, default in registry.options(module).items() if not isinstance(default, str)}
    return found


def _fields(mech: Any) -> dict[str, Any]:
    """The parameters of a mechanism by name; none where there is no such mechanism."""
    if mech not in registry.names("mechanisms"):
        return {}
    return {f.name: f for f in dataclasses.fields(registry.mechanism(mech))}


def _name_faults(document: Document) -> list[Fault]:
    """Mechanisms, their parameters, accountants and figures that do not exist, wherever they are named."""
    faults: list[Fault] = []
    neighbours: list[str] = sorted({*ADJACENCIES, *(a for mech in _mechanisms(document) for a in registry.mechanism(mech).adjacencies)})  # type: ignore[attr-defined]
    for path in document.values:
        value = document.at(path)
        if path[-1:] == ("adjacency",) and isinstance(value, str) and value not in neighbours:
            faults.append(Fault(document.place(path), unknown("adjacency", value, neighbours)))
        before = ("", "", "", *path)[-3:]
        if isinstance(value, dict) and (before[1] == "process" or before[0] == "cases"):
            faults += _step_faults(document, value, path)
        folder = "accountants" if before[1] == "accountants" else "figures" if before[2] == "figure" else ""
        if not folder or not isinstance(value, str) or (folder, value) == ("accountants", "all"):
            continue
        name, colon, _ = value.partition(":") if folder == "accountants" else (value, "", "")
        if name not in registry.names(folder):
            faults.append(Fault(document.place(path), unknown(folder[:-1], name, registry.names(folder))))
        elif colon:
            try:
                registry.accountant(value)
            except UsageError as error:
                faults.append(Fault(document.place(path), str(error)))
    return faults


def _mechanisms(document: Document) -> set[str]:
    """The mechanisms named anywhere in a document, of those there are."""
    named = {document.at(path) for path in document.values if path[-1:] == ("mech",) and isinstance(document.at(path), str)}
    return named & set(registry.names("mechanisms"))


def _step_faults(document: Document, step: dict[str, Any], path: Key) -> list[Fault]:
    mech, names = step.get("mech"), registry.names("mechanisms")
    if not isinstance(mech, str):
        return []  # the model tells
    if mech not in names:
        return [Fault(document.place((*path, "mech")), unknown("mechanism", mech, names))]
    fields, faults = _fields(mech), []
    for key, value in step.items():
        if key in Step.model_fields:
            continue
        if key not in fields:
            near = registry.did_you_mean(key, [*fields, *Step.model_fields])
            said = f"unknown key {key[:60]!r}{near or f'. {mech} takes ' + (', '.join(fields) or 'no parameters')}"
            faults.append(Fault(document.place((*path, key), at_key=True), said))
        elif type_words(fields[key]) & {"float", "int"} and type(value) not in (int, float):
            faults.append(Fault(document.place((*path, key)), f"{key} must be a number; found {shown(value)}"))
    return faults


def _expect(document: Document, path: Key, panel: Panel, faults: list[Fault]) -> Expect:
    return _expect_row(document, path, COLUMNS[panel.table], {*_LABELS, *ALIASES, *_parameters(panel), *_options(panel)}, faults)


def _expect_row(document: Document, path: Key, known: tuple[str, ...], labels: set[str], faults: list[Fault]) -> Expect:
    """One expected row, its columns among ``known`` and what tells it apart among ``labels``."""
    expect = Expect.model_validate(document.at(path))
    columns = expect.model_extra or {}
    for key, value in columns.items():
        if ALIASES.get(key, key) not in known:
            said = f"unknown key {key!r}{registry.did_you_mean(key, [*known, *Expect.model_fields])}"
            faults.append(Fault(document.place((*path, key), at_key=True), said))
        elif isinstance(value, bool) or not isinstance(value, (int, float)):
            faults.append(Fault(document.place((*path, key)), f"{key} must be a number; found {shown(value)}"))
    if not columns:
        faults.append(Fault(document.place(path), f"an expect row needs a number to meet, under one of {', '.join(known)}"))
    for key in expect.where:
        if key not in labels:
            said = f"unknown column {key!r}{registry.did_you_mean(key, sorted(labels))}"
            faults.append(Fault(document.place((*path, "where", key), at_key=True), said))
    return expect


def _stem(name: str) -> str:
    return name.replace("\\", "/").rpartition("/")[2].rpartition(".")[0] or name
