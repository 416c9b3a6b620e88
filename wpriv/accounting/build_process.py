"""Build a checked Process from plain data (flags, recipes, JSON) or from objects; errors name the flag to change."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from wpriv.accounting import evaluate
from wpriv.accounting.history import merged, read_history
from wpriv.config import plain_words
from wpriv.config.plain_words import plain_step
from wpriv.core import registry
from wpriv.core.kinds import Adjacency, Sampling
from wpriv.core.mechanism import Mechanism
from wpriv.core.pair_distances import Observed
from wpriv.core.parameters import flag
from wpriv.core.process import Process, Step
from wpriv.core.repetition import ONE_RELEASE, sampling_keys, with_repetitions
from wpriv.errors import Unsupported, UsageError, placed
from wpriv.files import shown_path
from wpriv.hints import plain
from wpriv.numerics.numbers import number, shown, whole


def neighbour_readings(process: Process) -> list[str]:
    """Notes on groups and largest batches, and premises that every answer says, as far as the process has them."""
    lines = []
    sampled = [step.sampling for step in process.steps if step.sampling.kind == "poisson" and step.sampling.rate < 1]
    if process.group > 1:
        lines.append(
            f"group = {process.group}: a person has up to {process.group} records; parameters of a mechanism, such as "
            f"its sensitivity, are those of one record"
        )
    if process.records and any(sampling.max_batch for sampling in sampled):
        lines.append(
            f"of a batch of more records than the largest a uniformly random part is kept; no data set has more than "
            f"{process.records} records"
        )
    for step in process.steps:
        noise = step.mechanism.additive_noise() if step.sampling.kind == "fixed" else None
        lines += [] if noise is None else [of_replacement(noise.scale / noise.sensitivity)]
    lines = list(dict.fromkeys(lines))[:MAX_READINGS]
    return lines + [premise.sentence for premise in process.premises() if premise.shown]


def default_sensitivities(steps: Iterable[Mapping[str, Any]]) -> list[str]:
    """Notes on the default sensitivity of steps, as of ``plain_step``, that name a mechanism and give it no other."""
    mechs = [step["mech"] for step in steps if step.get("sensitivity") is None]
    mechs = [mech for mech in mechs if not isinstance(mech, Mechanism)]
    lines = []
    plugins = {registry.mechanism(mech): mech for mech in mechs}
    for plugin, mech in plugins.items():
        default = next((f.default for f in dataclasses.fields(plugin) if f.name == "sensitivity"), None)
        if isinstance(default, int | float):
            norm = f" ({plugin.norm} norm)" if plugin.norm else ""
            of = f" of {mech if isinstance(mech, str) else mech.__name__}" if len(plugins) > 1 else ""
            lines.append(f"sensitivity{of} = {default:g}{norm}, since none was given")
    return list(dict.fromkeys(lines))


def _weights(written: Iterable[Mapping[str, Any]], steps: Iterable[Mapping[str, Any]]) -> list[str]:
    """Notes on steps whose sensitivity is that of the largest weight."""
    lines = []
    for before, after in zip(written, steps, strict=True):
        if before.get("largest_weight") is not None:
            line = f"largest weight {before['largest_weight']}: one client or record moves the sum by up to "
            line += f"{after['sensitivity']:g}; weights depend neither on other clients nor on outputs"
            sigma = after.get("sigma")
            if sigma is not None:
                line += f"; noise multiplier relative to it = {number(sigma, 'sigma') / after['sensitivity']:.6g}"
            lines.append(line)
    return lines


GAUSSIAN = "mech = gauss, the noise that sigma and a noise multiplier are of, since none was named"


def of_replacement(multiplier: float) -> str:
    """What a noise multiplier means between neighbours that replace a record."""
    return (
        f"the sensitivity is what replacing a record changes: of a sum of clipped gradients twice the clipping norm, "
        f"so that noise of {multiplier:.6g} x that norm is a noise multiplier of {multiplier / 2:.6g} here"
    )


# kinds of steps whose readings are listed
MAX_READINGS = 20


def step(spec: Mapping[str, object]) -> Step:
    """``Step.from_dict`` of a user's step: n is 1 by default, and ``observed`` any form of pair distances.

    Raises:
        UsageError, MissingResource: the step or its pair distances are faulty.
    """
    return Step.from_dict({"n": 1, **spec, "observed": _distances(spec.get("observed"))})


def _distances(observed: object) -> Observed | None:
    if observed is None:
        return None
    from wpriv.accounting import history as load_distances

    return load_distances.observed(observed)


def process(
    specs: Iterable[Mapping[str, object]],
    adjacency: str | None = None,
    places: Sequence[str] = (),
    *,
    group: object = None,
    records: int | None = None,
) -> Process:
    """Build a Process from step mappings (see ``step``); consecutive equal steps are merged by adding their counts.

    Args:
        places: where each step was written, for messages; empty for a single step.
        group: number of records of one person. records: size of the data set, kept where a guarantee depends on it.
    """
    steps: list[Step] = []
    for index, spec in enumerate(specs):
        with placed(places[index] if places else ""):
            new = step(spec)
        alike = bool(steps) and steps[-1].adds_to(new)
        if alike and (new.observed is None or new.observed.steps == 1):
            new = dataclasses.replace(new, n=steps.pop().n + new.n)
        steps.append(new)
    if isinstance(adjacency, str) and not adjacency:
        raise UsageError("the adjacency is empty; give add-remove or replace-one, or leave it out")
    persons = 1 if group is None else whole(group, "group")
    depends = any(
        step.sampling.max_batch or (persons > 1 and step.sampling.kind == "fixed" and step.sampling.rate < 1)
        for step in steps
    )
    size = records if depends and records is not None else 0
    return Process(tuple(steps), "" if adjacency is None else adjacency, persons, size)


def question(**given: object) -> dict[str, float]:
    """eps, delta and tol as numbers, without those that are None."""
    return {name: number(value, f"`{name}`") for name, value in given.items() if value is not None}


@dataclasses.dataclass(frozen=True)
class DescribedProcess:
    """A process as a user described it.

    Args:
        process: what runs. notes: how the arguments were read. records: the size of the data set, if it was given.
        runs: the number of runs of a training's ledger; 0 where there is none. warnings: on what is easily mistaken.
    """

    process: Process
    notes: tuple[str, ...] = ()
    records: int | None = None
    runs: int = 0
    warnings: tuple[str, ...] = ()

    def by(self, named: str | None) -> tuple[DescribedProcess, str]:
        """The accountant, of ``named_or_default``, and the process with the note on it."""
        name, notes = named_or_default(named, self.process)
        return dataclasses.replace(self, notes=(*self.notes, *notes)), name

    def tol(self) -> float:
        """The default relative width of a bracket; the same as in a statement, so that both show the same figure."""
        return evaluate.answer_tol(self.process)


def named_or_default(named: str | None, process: Process) -> tuple[str, list[str]]:
    """The accountant that is named, else pld; or rdp where only Renyi divergences are known, which a note then says."""
    given = next((step.mechanism.name for step in process.steps if _has_no_pair(step.mechanism)), None)
    if named is not None or given is None:
        return "pld" if named is None else named, []
    return "rdp", [f"accountant = rdp, since none was named and of {given} only Renyi divergences are known"]


def _has_no_pair(mechanism: Mechanism) -> bool:
    """Tell whether bounds of the Renyi divergences are all that is known; others have a pair besides."""
    if mechanism.renyi_bound() is None:
        return False
    try:
        mechanism.pair()
    except Unsupported:
        return True
    return False


def described_process(
    mech: str | type[Mechanism] | Mechanism | Process | None = None,
    *,
    n: object = None,
    sampling: str | Sampling | None = None,
    rate: object = None,
    batch: object = None,
    records: object = None,
    epochs: object = None,
    max_batch: object = None,
    bands: object = None,
    bins: object = None,
    min_separation: object = None,
    largest_weight: object = None,
    adjacency: str | None = None,
    group: object = None,
    history: str | Path | None = None,
    observed: object = None,
    **params: object,
) -> DescribedProcess:
    """The process of the arguments of ``budget``: a mechanism, words, a history file or a complete Process."""
    keys = {"n": n, "batch": batch, "records": records, "epochs": epochs, "bands": bands, "bins": bins}
    keys |= {"min_separation": min_separation, "largest_weight": largest_weight}
    keys |= sampling_keys(sampling, rate, max_batch)
    adjacency = plain("adjacencies", adjacency) if isinstance(adjacency, str) else adjacency
    if history is None and isinstance(mech, str) and len(mech.split()) > 1 and plain_words.is_sentence(mech):
        return _from_words(mech, {**params, **keys, "observed": observed, "adjacency": adjacency, "group": group})
    if isinstance(mech, Mechanism) and history is None and params:
        raise UsageError(f"{mech} has its parameters; leave out {', '.join(params)}")
    if history is None and not isinstance(mech, Process):
        return described_steps([{"mech": mech, **params, **keys, "observed": observed}], adjacency, group)
    others = {**keys, "observed": observed, "records": None, **params}
    others |= {"mech": None if history is None else mech}
    others |= {"sampling": None if keys["sampling"] == "none" else keys["sampling"]}
    if given := [flag(name) if name in params else f"`{name}`" for name, value in others.items() if value is not None]:
        whole_steps = "a Process" if history is None else "`history`"
        raise UsageError(f"{whole_steps} holds whole steps; it cannot be combined with {', '.join(given)}")
    if isinstance(mech, Process):
        if adjacency not in (None, mech.adjacency):
            raise UsageError(f"the process has {mech.adjacency} neighbours; found adjacency {shown(adjacency)}")
        if group not in (None, mech.group):
            raise UsageError(f"the process has groups of {mech.group}; found `group` {shown(group)}")
        size = data_set_size([{"records": records}])
        if mech.records and size not in (None, mech.records):
            raise UsageError(f"the process is about {mech.records} records; found `records` {size}")
        return DescribedProcess(mech, tuple(_readings(mech)), size or mech.records or None)
    assert history is not None
    return _from_history(history, adjacency, group, records)


def _from_words(text: str, keys: Mapping[str, Any]) -> DescribedProcess:
    """The process of a sentence; one of a single step may leave keys to those beside it."""
    words = plain_words.parse(text)
    if len(words.steps) == 1:
        step = plain_words.with_words(text, keys, "this")
        return described_steps([step], step.pop("adjacency"), step.pop("group"))
    relation = {key: keys[key] for key in plain_words.SHARED if keys[key] is not None}
    others = [key for key, value in keys.items() if key not in plain_words.SHARED and value is not None]
    if others or relation.keys() & words.shared.keys():
        twice = [*others, *(relation.keys() & words.shared.keys())][0]
        raise UsageError(f"{text[:80]!r} holds whole steps; leave out `{twice}`, or say it in words")
    return described_steps(words.steps, **relation, **words.shared)


def _from_history(history: str | Path, adjacency: str | None, group: object, records: object) -> DescribedProcess:
    steps = read_history(history)
    relation = steps.relation(history, adjacency)
    size = data_set_size([*steps.steps, {"records": records}], group)
    specs, notes = with_repetitions(steps.steps, steps.places)
    specs, places = merged(specs, steps.places)
    built = process(specs, relation, places, group=group, records=size)
    kinds = "1 kind of step" if len(specs) == 1 else f"{len(specs)} kinds of steps"
    read = [f"{kinds} read from {shown_path(history)}", *steps.notes, *(note for note in notes if note != ONE_RELEASE)]
    read += [*default_sensitivities(steps.steps), *_readings(built)]
    return DescribedProcess(built, tuple(dict.fromkeys(read)), size, steps.runs)


def described_steps(
    steps: Iterable[Mapping[str, object]], adjacency: str | None = None, group: object = None
) -> DescribedProcess:
    """The process of steps as in a recipe: ``{mech, <parameters>, sampling, n | epochs, rate | batch, records}``."""
    written = list(steps)
    steps = [plain_step(step) for step in written]
    for step in steps:
        plain_words.require_mechanism(step)
    specs, notes = with_repetitions(steps)
    if any(step.get("mech", "") is None for step in written):
        notes.append(GAUSSIAN)
    adjacency = plain("adjacencies", adjacency) if isinstance(adjacency, str) else adjacency
    size = data_set_size(steps, group)
    built = process(specs, adjacency, group=group, records=size)
    relative = [step for step in written if step.get("noise_multiplier") and step.get("sensitivity") is None]
    warnings: list[str] = []
    if built.adjacency == Adjacency.REPLACE_ONE:
        warnings += [of_replacement(number(step["noise_multiplier"], "`noise_multiplier`")) for step in relative]
    # the warnings are notes as well, for answers that have no place for warnings
    notes = [*notes, *default_sensitivities(steps), *_weights(written, steps), *warnings, *_readings(built)]
    return DescribedProcess(built, tuple(dict.fromkeys(notes)), size, warnings=tuple(dict.fromkeys(warnings)))


def data_set_size(steps: Iterable[Mapping[str, object]], group: object = None) -> int | None:
    """The size of the data set: the largest that a step names; None where none does."""
    steps = list(steps)
    sizes = [whole(step["records"], "records") for step in steps if step.get("records") is not None]
    if sizes and min(sizes) < 1:
        raise UsageError(f"`records` is the size of the data set, at least 1; found {min(sizes)}")
    persons = 1 if group is None else whole(group, "group")
    if persons > 1 and len(set(sizes)) > 1 and any(step.get("sampling") == "fixed" for step in steps):
        raise UsageError(
            f"fixed-size sampling of groups is accounted for on one data set; found `records` {sizes[0]} and others"
        )
    return max(sizes, default=None)


def _readings(process: Process) -> list[str]:
    """Notes on observed units and neighbours, and of the first steps' mechanisms on how they read their parameters."""
    units = [step.observed.describe() for step in process.steps if step.observed is not None]
    notes = [f"sigma and sensitivity are multiples of the observed unit: {unit}" for unit in units]
    lines = [line for step in process.steps[:MAX_READINGS] for line in step.mechanism.reading()]
    return list(dict.fromkeys([*notes, *neighbour_readings(process), *lines]))
