"""Recipes as arguments of verbs: from files, from flags, and from keywords.

Load recipes: read, resolve and validate a file, and turn it into the arguments of a verb.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from wpriv.accounting import build_process
from wpriv.config import document, plain_words, recipe, yaml_document
from wpriv.config.plain_words import plain_step
from wpriv.config.recipe import Recipe, check
from wpriv.config.recipe_files import find, short_name
from wpriv.config.resolve import file_beside
from wpriv.config.schema import Part
from wpriv.config.validate_process import swept_fault
from wpriv.core import registry
from wpriv.core.mechanism import Mechanism
from wpriv.core.parameters import field_value
from wpriv.core.process import Process
from wpriv.core.repetition import sampling_keys
from wpriv.errors import Unsupported, UsageError
from wpriv.files import shown_path
from wpriv.hints import plain_key
from wpriv.numerics.numbers import number, refuse_dots, whole


def read(name: str | Path, *, quick: bool = False, kind: str | None = None) -> Recipe:
    """Load a recipe by its path or its shipped name. Input files that it names are located but not read.

    Raises:
        UsageError: the recipe is faulty (every fault with its place), or of another kind than ``kind``.
        MissingResource: the file may not be read.
    """
    path = find(str(name))
    document = yaml_document.read(path)
    loaded = replace(check(document, quick=quick, folder=path.parent), name=short_name(path))
    if kind is not None and loaded.kind != kind:
        raise UsageError(
            f"{shown_path(path)} is a recipe of kind {loaded.kind!r}, not {kind!r}. Run it with "
            f"`wpriv {loaded.kind} {name}`"
        )
    return loaded


def budget(name: str | Path) -> tuple[build_process.DescribedProcess, list[str] | None, dict[str, object]]:
    """Return the process of a recipe of kind budget, its accountants, and the question: eps or delta, tol, repeats."""
    data = read(name, kind="budget").data
    job = build_process.described_steps(data["process"], data.get("adjacency"), data.get("group"))
    question: dict[str, object] = {**_question(data)}
    if data.get("repeats") is not None:
        question["repeats"] = data["repeats"]
    return job, data.get("accountants"), question


def calibrate(name: str | Path) -> dict[str, object]:
    """Return the arguments of the verb ``calibrate`` that a recipe of that kind amounts to."""
    data = read(name, kind="calibrate").data
    (step,), (accountant,) = data["process"], data.get("accountants") or [None]
    given = {key: value for key, value in step.items() if value is not None}
    relation = {"adjacency": data.get("adjacency"), "group": data.get("group")}
    named = {**relation, "accountant": accountant, "repeats": data.get("repeats")}
    return {**given, **named, **_question(data)}


def privatize(name: str | Path) -> dict[str, object]:
    """Return the arguments of the verb ``privatize`` that a recipe of that kind amounts to.

    Paths of files are relative to the recipe.

    Raises:
        UsageError: as ``recipe``; or the records are not named.
    """
    data = dict(read(name, kind="privatize").data)
    records, folder = dict(data.pop("data")), find(str(name)).parent
    source = records.pop("name", None) or records.pop("file", None)
    if source is None:
        raise UsageError(f"{name}: data needs the name of a data set, or a file; found neither")
    given = {**data, **records, "data": source}
    arguments = {key: value for key, value in given.items() if key not in ("kind", "source") and value is not None}
    files = [key for key in ("data", "file", "public", "thresholds") if key in arguments]
    return arguments | {key: str(file_beside(folder, arguments[key]) or arguments[key]) for key in files}


def _question(data: dict[str, Any]) -> dict[str, float]:
    return build_process.question(**{key: data.get(key) for key in ("eps", "delta", "tol")})


# Comparisons from flags or keywords instead of a recipe file.

# keys of a step that are numbers, whole and real
COUNTS = ("n", "bins", "batch", "records", "max_batch", "bands", "min_separation")
SHARES = ("rate", "epochs", "noise_multiplier", "largest_weight")
# quantities of a sweep whose values are words
WORDS = ("mech", "sampling", "adjacency", "accountant")


def from_flags(data: dict[str, object]) -> recipe.Recipe:
    """Make a recipe of kind compare from its keys other than ``kind`` and ``source``."""
    return recipe.check(document.of_data("the flags", {"kind": "compare", "source": "", **data}))


def from_keys(keys: Mapping[str, object]) -> recipe.Recipe:
    """Make a recipe of kind compare from keywords, whose processes may be Processes."""
    plain: dict[str, Any] = _with_process(keys) if "mech" in keys else dict(keys)
    process = plain.get("process")
    if isinstance(process, str):
        plain |= _in_words(process, plain)
    if isinstance(process, Process):
        if plain.get("adjacency") not in (None, process.adjacency):
            raise UsageError(f"the process has {process.adjacency} neighbours; found adjacency {plain['adjacency']!r}")
        if plain.get("group") not in (None, process.group):
            raise UsageError(f"the process has groups of {process.group}; found group {plain['group']!r}")
        plain |= plain_process(process)
    if isinstance(plain.get("cases"), Mapping):
        plain |= _relation(plain)
        cases = plain["cases"].items()
        plain["cases"] = {
            name: plain_process(case)["process"] if isinstance(case, Process) else case for name, case in cases
        }
    return from_flags(plain)


def _with_process(keys: Mapping[str, Any]) -> dict[str, Any]:
    """The keys of a recipe, with a process in the place of those keywords of ``budget`` that describe one."""
    keys = plain_words.plain_question(keys, Part.model_fields)
    plain = {key: value for key, value in keys.items() if key in Part.model_fields}
    step = {
        key: value for key, value in keys.items() if key not in {*plain, "mech", "accountant"} and value is not None
    }
    if "process" in plain or "cases" in plain:
        raise UsageError("`mech` and `process` both describe what runs; give one of them")
    if keys.get("accountant") is not None:
        if plain.get("accountants"):
            raise UsageError("`accountant` and `accountants` both name the accountants; give one of them")
        named = keys["accountant"]
        plain["accountants"] = [named] if isinstance(named, str) else list(named)
    mech = keys["mech"]
    if isinstance(mech, Process) or (not step and plain_words.is_sentence(mech) and " " in mech.strip()):
        if step:
            raise UsageError(f"a Process holds whole steps; leave out `{next(iter(step))}`")
        return {**plain, "process": mech}
    history = step.pop("history", None)
    step |= sampling_keys(step.get("sampling"), step.get("rate"), step.get("max_batch"))
    step |= mech.describe() if isinstance(mech, Mechanism) else plain_words.with_words(mech, step, "compare")
    sweep = plain.get("sweep") or ()
    if isinstance(sweep, str) or not all(
        isinstance(axis, Mapping) for axis in ([sweep] if isinstance(sweep, Mapping) else sweep)
    ):
        raise UsageError(
            f"sweep is a mapping, as in {{'over': 'sigma', 'values': [1, 2]}}, or a list of them; found {sweep!r:.60}"
        )
    swept = [str(axis.get("over")) for axis in ([sweep] if isinstance(sweep, Mapping) else sweep)]
    relation = step.pop("adjacency", plain.get("adjacency")), step.pop("group", plain.get("group"))
    return {**plain, **steps_of_flags(plain_step(step), *relation, history, swept)}


def _in_words(text: str, keys: Mapping[str, object]) -> dict[str, object]:
    """The keys ``process``, ``adjacency`` and ``group`` that a process in words gives."""
    words = plain_words.parse(text)
    if twice := [key for key in words.shared if keys.get(key) is not None]:
        raise UsageError(f"{twice[0]} is given twice: in {text[:80]!r}, and as `{twice[0]}`")
    return {**steps_in_words(words.steps), **words.shared}


def steps_in_words(steps: Iterable[Mapping[str, object]]) -> dict[str, object]:
    """The key ``process`` of a recipe for the steps of a sentence."""
    return {"process": [in_types(plain_step(step)) for step in steps]}


def _relation(plain: dict[str, Any]) -> dict[str, object]:
    """The keys ``adjacency`` and ``group`` of cases that are Processes; none where each has its default."""
    cases = plain["cases"].values()
    processes = [case for case in cases if isinstance(case, Process)]
    defaults = {
        "adjacency": all(_has_default_adjacency(case) for case in processes),
        "group": all(case.group == 1 for case in processes),
    }
    relation = {}
    for key, is_default in defaults.items():
        if plain.get(key) is None and is_default:
            continue
        values = [getattr(case, key) for case in processes]
        values += [plain.get(key)] if plain.get(key) is not None or len(processes) < len(cases) else []
        if any(value != values[0] for value in values):
            words = ", ".join(dict.fromkeys(str(value) for value in values if value is not None))
            raise UsageError(f"cases are compared under one {key}, named by `{key}` or the same in all; found {words}")
        relation[key] = values[0]
    return relation


def _has_default_adjacency(process: Process) -> bool:
    try:
        return Process(process.steps, records=process.records).adjacency == process.adjacency
    except Unsupported:
        return False


def steps_of_flags(
    written: Mapping[str, Any], adjacency: str | None, group: object, history: str | None, swept: Collection[str]
) -> dict[str, object]:
    """Return ``process``, ``adjacency`` and ``group`` of a recipe, from the flags of ``budget``.

    Args:
        written: the keys of a step, as text; those that an axis of a sweep (``swept``) sets need not be there.
    """
    if history is not None:
        job = build_process.described_process(**written, adjacency=adjacency, group=group, history=history)
        return plain_process(job.process)
    written = plain_words.with_noise({"mech": None, **written}, swept)
    plain_words.require_mechanism(written)
    step = {key: value for key, value in written.items() if value is not None}
    if (fault := swept_fault(step, swept)) is not None:
        raise UsageError(fault)
    registry.mechanism(step["mech"])
    relation = {"adjacency": adjacency, "group": None if group is None else whole(group, "group")}
    return {"process": [in_types(step)], **{key: value for key, value in relation.items() if value is not None}}


def in_types(step: Mapping[str, object]) -> dict[str, object]:
    """A step whose numbers are text, with numbers as in a recipe; unknown keys are left for the schema to refuse."""
    fields = {f.name: f for f in dataclasses.fields(registry.mechanism(step["mech"]))}
    values = dict(step)
    for key, value in step.items():
        if key in fields:
            values[key] = field_value(fields[key], value)
        elif isinstance(value, str) and key in COUNTS:
            values[key] = whole(value, f"`{key}`")
        elif isinstance(value, str) and key in SHARES:
            values[key] = number(value, f"`{key}`")
    return values


def plain_process(process: Process) -> dict[str, Any]:
    """The keys of a recipe that describe a process."""
    size = {"records": process.records} if process.records else {}
    steps = [{k: v for k, v in (step | size).items() if v is not None} for step in process.describe()]
    return {"process": steps, "adjacency": process.adjacency} | ({"group": process.group} if process.group > 1 else {})


def sweep(text: str) -> dict[str, object]:
    """Parse an axis: ``n=64,256``, ``eps=linspace:0,4,81``, ``sigma=geomspace:1,100,21`` or ``n=powers:2,0,16``."""
    over, equals, values = text.partition("=")
    kind, colon, numbers = values.rpartition(":")
    if not equals or not over.strip() or not numbers.strip():
        raise UsageError(f"--sweep wants name=values, as in n=64,256,1024 or eps=linspace:0,4,81; found {text[:80]!r}")
    over = plain_key(over.strip()).replace("-", "_")
    if over in WORDS:
        return {"over": over, "words": [word.strip() for word in values.split(",")]}
    parts = [part.strip() for part in numbers.split(",")]
    if any(len(part) > 1 and part.isdigit() and part.startswith("0") for part in parts):
        raise UsageError(f"--sweep separates its values by commas, and has numbers without any; found {text[:80]!r}")
    if over in COUNTS:
        for part in parts:
            refuse_dots(part, f"--sweep {over}")
    points = [number(part, f"--sweep {over}") for part in parts]
    return {"over": over, "values": {kind.strip(): points} if colon else points}


def parameters_of(mech: str | None, params: dict[str, object]) -> dict[str, object]:
    """Those parameters that a mechanism has."""
    names = set() if mech is None else {f.name for f in dataclasses.fields(registry.mechanism(mech))}
    names |= {"noise_multiplier"} if "sigma" in names else set()
    return {name: value for name, value in params.items() if name in names}


def panels(axes: list[dict[str, Any]], make: Callable[[dict[str, str]], dict[str, object]]) -> dict[str, object]:
    """The keys of a recipe for each choice of the words that axes sweep over: panels by name, or those of the one."""
    if not axes:
        return make({})
    choices = itertools.product(*([(axis["over"], word) for word in axis["words"]] for axis in axes))
    return {"panels": [{"name": ", ".join(w for _, w in choice), **make(dict(choice))} for choice in choices]}
