"""Recipes from disk: found by path or by the name they ship under, checked, ready to run."""

from __future__ import annotations

import dataclasses
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from wpriv.config import yaml_document
from wpriv.config.field_types import Time
from wpriv.config.resolve import Recipe, check
from wpriv.config.yaml_document import Document, Fault, refuse
from wpriv.core import registry
from wpriv.errors import UsageError
from wpriv.files import durable_writes
from wpriv.hints import did_you_mean
from wpriv.run.accounting import build_process
from wpriv.run.accounting.calibrate import unknown
from wpriv.run.comparison import grid
from wpriv.run.local import local_mechanism
from wpriv.run.parse_numbers import number


@dataclass(frozen=True)
class Listed:
    """What ``wpriv recipe ls`` says of a recipe: its kind, how long it takes, the data that it needs, and its source."""

    name: str
    kind: str
    time: Time | None
    data: str
    source: str


def shipped() -> dict[str, Path]:
    """The recipes that come with the program, by name (``plc/fig7-dpsgd``): inside the wheel, or in the source tree around it."""
    package = Path(__file__).resolve().parent.parent
    for root in (package / "recipes", package.parent / "recipes"):
        if root.is_dir():
            return {path.relative_to(root).with_suffix("").as_posix(): path for path in sorted(root.rglob("*.yaml"))}
    return {}


def find(name: str) -> Path:
    """A recipe file: a path, or the name of a shipped recipe, with or without its folder and its ``.yaml``.

    Raises:
        UsageError: there is none of that name, or several.
    """
    path = Path(name)
    with_suffix = name if name.endswith((".yaml", ".yml")) else f"{name}.yaml"
    try:
        for candidate in (path, Path(with_suffix)):
            if candidate.is_file():
                return candidate
    except (OSError, ValueError):
        pass  # too long or holds a null byte: then it is no file, and no shipped name either
    known = shipped()
    bare = with_suffix.rpartition(".")[0].removeprefix("recipes/")
    hits = [key for key in known if bare in (key, key.rpartition("/")[2])]
    if len(hits) == 1:
        return known[hits[0]]
    if hits:
        raise UsageError(f"several recipes are called {name!r}: {', '.join(hits)}. Give the folder as well")
    near = did_you_mean(bare[:100], list(known))
    raise UsageError(
        f"no recipe {name[:200]!r}: neither a file nor a shipped recipe{near or '.'} `wpriv recipe ls` lists those there are"
    )


def recipe(name: str | Path, *, quick: bool = False, kind: str | None = None) -> Recipe:
    """Finds, checks and resolves a recipe; the processes it names are built once, so that their faults show here as well.

    Raises:
        UsageError: every fault with its file, line and column; or it is sound, but of another kind than ``kind``.
    """
    path = find(str(name))
    found = yaml_document.read(path, str(path))
    _resolve_files(found, path.parent)
    made = check(found, quick=quick)
    faults = _built(found) + _priced(found)
    if faults:
        raise refuse(found.name, found.lines, faults)
    if made.kind == "compare":
        try:
            grid.check(grid.cells(made))
        except UsageError as error:
            raise UsageError(f"{path}: {error}") from None
    if kind is not None and made.kind != kind:
        raise UsageError(
            f"{path} is a recipe of kind {made.kind!r}, not {kind!r}. Run it with `wpriv {made.kind} {name}`"
        )
    return made


def budget(name: str | Path) -> tuple[build_process.Job, list[str], dict[str, float]]:
    """The process of a recipe of kind budget, who is to price it, and the question (eps or delta, and tol where given)."""
    data = recipe(name, kind="budget").data
    return (
        build_process.job_of_steps(data["process"], data.get("adjacency")),
        data.get("accountants") or ["pld"],
        _question(data),
    )


def calibrate(name: str | Path) -> dict[str, Any]:
    """The arguments of the verb ``calibrate`` that a recipe of that kind amounts to."""
    data = recipe(name, kind="calibrate").data
    (step,), (accountant,) = data["process"], data.get("accountants") or ["pld"]
    given = {key: value for key, value in step.items() if value is not None}
    return {**given, "adjacency": data.get("adjacency"), "accountant": accountant, **_question(data)}


def privatize(name: str | Path) -> dict[str, Any]:
    """The arguments of the verb ``privatize`` that a recipe of that kind amounts to; its files are named relative to it.

    Raises:
        UsageError: as ``recipe``; or the records are not named.
    """
    data = dict(recipe(name, kind="privatize").data)
    rows, folder = dict(data.pop("data")), find(str(name)).parent
    source = rows.pop("name", None) or rows.pop("file", None)
    if source is None:
        raise UsageError(f"{name}: data needs the name of a data set, or a file; found neither")
    kept = {
        key: value
        for key, value in {**data, **rows, "data": source}.items()
        if key not in ("kind", "source") and value is not None
    }
    return kept | {key: _beside(folder, kept[key]) for key in ("data", "file", "public", "thresholds") if key in kept}


def _beside(folder: Path, file: str) -> str:
    """A file as named in a recipe: beside it, where there is one, else as it stands."""
    return str(folder / file) if "\0" not in file and (folder / file).is_file() else file


def _question(data: dict[str, Any]) -> dict[str, float]:
    return {key: data[key] for key in ("eps", "delta", "tol") if data.get(key) is not None}


def listing(beginning: str | None = None) -> list[Listed]:
    """The shipped recipes by name.

    Args:
        beginning: only those of a paper (``plc``), or whose name begins so (``plc/fig7``, ``fig7``).
    Raises:
        UsageError: there is none of that beginning.
    """
    known = shipped()
    if beginning is not None:
        start = beginning.lower().removeprefix("recipes/")
        known = {
            name: path
            for name, path in known.items()
            if name.startswith(start) or name.rpartition("/")[2].startswith(start)
        }
    if beginning is not None and not known:
        papers = list(dict.fromkeys(name.partition("/")[0] for name in shipped()))
        near = did_you_mean(beginning[:100], papers) or "."
        raise UsageError(f"no shipped recipe begins with {beginning[:100]!r}{near} Papers: {', '.join(papers)}")
    return [_listed(name, yaml_document.read(path).data) for name, path in known.items()]


def _listed(name: str, data: dict[str, Any]) -> Listed:
    time = None if data.get("time") is None else Time.model_validate(data["time"])
    return Listed(name, str(data["kind"]), time, _data_of(data), str(data.get("source", "")))


def _data_of(data: dict[str, Any]) -> str:
    """The data set of a recipe, or the file that a mechanism reads; empty where there is none."""
    about = data.get("data") or {}
    if about.get("name") == "pair":
        sides = [str(about.get(side)).partition("/")[0] for side in ("source", "target")]
        return " to ".join(dict.fromkeys(sides))
    steps = [*(data.get("process") or []), *(step for case in (data.get("cases") or {}).values() for step in case)]
    files = [step["file"] for step in steps if isinstance(step.get("file"), str)]
    return str(about.get("name") or about.get("file") or ", ".join(dict.fromkeys(files)))


def copy(name: str, to: Path) -> list[Path]:
    """Copy a recipe, and the files its steps read; return what was written.

    Args:
        to: the new file, ending in .yaml or .yml, or a directory; both are created with the folders above them where they are missing.
    Raises:
        UsageError: no such recipe, or a target is there already: nothing is overwritten. MissingResource: it cannot be written.
    """
    path = find(name)
    recipe = yaml_document.read(path)
    steps = [recipe.at(p) for p in recipe.values]
    inner = {
        s[key] for s in steps if isinstance(s, dict) for key in ("file", "observed") if isinstance(s.get(key), str)
    }
    target = to if to.suffix in (".yaml", ".yml") and not to.is_dir() else to / path.name
    pairs = [
        (path, target),
        *((path.parent / f, target.parent / f) for f in sorted(inner) if (path.parent / f).is_file()),
    ]
    for _, new in pairs:
        if os.path.lexists(new):
            raise UsageError(f"{new} is there already and is not overwritten; name another file or directory")
    for old, new in pairs:
        durable_writes.make_folder(new.parent)
        durable_writes.replace(new, old.read_bytes())
    return [new for _, new in pairs]


def from_flags(data: dict[str, Any]) -> Recipe:
    """The compare recipe that keywords or flags amount to (its keys but ``kind`` and ``source``); faults have no line numbers."""
    return check(yaml_document.of_data("the flags", {"kind": "compare", "source": "", **data}))


def steps_of_flags(
    mech: str | None,
    params: dict[str, Any],
    schedule: dict[str, Any],
    adjacency: str | None,
    history: str | None,
    swept: list[str],
    observed: str | None = None,
) -> dict[str, Any]:
    """``process`` and ``adjacency`` of a recipe, from the flags of ``budget``; a swept parameter need not be given."""
    blank = {}
    if mech is not None:
        fields = dataclasses.fields(registry.mechanism(mech))
        blank = {f.name: 1.0 for f in fields if f.name in swept and f.name not in params}
    if "rate" in swept and schedule.get("rate") is None and schedule.get("batch") is None:
        schedule = {**schedule, "rate": 1.0}
    job = build_process.job(
        mech, params={**params, **blank}, **schedule, adjacency=adjacency, history=history, observed=observed
    )
    steps = [{k: v for k, v in step.describe().items() if v is not None} for step in job.process.steps]
    return {"process": steps, "adjacency": job.process.adjacency}


def sweep(text: str) -> dict[str, Any]:
    """One axis from text: ``n=64,256,1024``, ``eps=linspace:0,4,81``, ``sigma=geomspace:1,100,21`` or ``n=powers:2,0,16``.

    Raises:
        UsageError: it is none of these.
    """
    over, equals, values = text.partition("=")
    kind, colon, numbers = values.rpartition(":")
    if not equals or not over.strip() or not numbers.strip():
        raise UsageError(f"--sweep wants name=values, as in n=64,256,1024 or eps=linspace:0,4,81; found {text[:80]!r}")
    points = [number(part, f"--sweep {over}") for part in numbers.split(",")]
    return {"over": over.strip(), "values": {kind.strip(): points} if colon else points}


def _resolve_files(found: Document, folder: Path) -> None:
    """Files that a mechanism reads are named relative to the recipe, wherever it is run from."""
    for path in found.values:
        step = found.at(path)
        if not (
            isinstance(step, dict)
            and isinstance(step.get("mech"), str)
            and step["mech"] in registry.names("mechanisms")
        ):
            continue
        for f in dataclasses.fields(registry.mechanism(step["mech"])):
            given = step.get(f.name)
            if f.name == "file" and isinstance(given, str) and "\0" not in given and (folder / given).is_file():
                step[f.name] = str((folder / given).resolve())
        seen = step.get("observed")
        if isinstance(seen, str) and seen.endswith((".npz", ".csv")) and "\0" not in seen and (folder / seen).is_file():
            step["observed"] = str((folder / seen).resolve())


def _built(found: Document) -> list[Fault]:
    """Faults that only show when a step is built: a parameter out of range or missing. Swept parameters are left to the run."""
    faults = []
    swept = {axis["over"] for p in found.values if p[-1:] == ("sweep",) for axis in _axes(found.at(p))}
    for where in found.values:
        step = found.at(where)
        before = ("", "", "", *where)[-3:]
        if not (isinstance(step, dict) and (before[1] == "process" or before[0] == "cases")):
            continue
        try:
            fields = dataclasses.fields(registry.mechanism(step["mech"]))
            blank = {f.name: 1 for f in fields if f.name in swept and f.name not in step and "str" not in str(f.type)}
            if found.data["kind"] == "calibrate":
                knob, step, _ = unknown(step)
                blank = {knob.name: 1}
            build_process.step(grid.spec({**step, **blank}))
        except UsageError as error:
            faults.append(Fault(found.place(where), str(error)))
    return faults


def _priced(found: Document) -> list[Fault]:
    """What is wrong with the noise of a recipe of kind privatize, as far as it shows without the records."""
    data = found.data
    if data["kind"] != "privatize" or data.get("radius") is None:
        return []
    keys = ("radius", "eps", "delta", "sigma", "scale", "formula", "nonnegative")
    try:
        given = {key: data[key] for key in keys if data.get(key) is not None}
        local_mechanism.calibrated(local_mechanism.LocalMechanism(mech=data["mech"], **given), data["radius"])
    except UsageError as error:
        return [Fault(found.place(()), str(error))]
    return []


def _axes(sweep: Any) -> list[Any]:
    return sweep if isinstance(sweep, list) else [sweep]
