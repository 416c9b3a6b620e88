"""DpEvents of dp_accounting as the steps of a recipe: the one place that says what each class of event stands for.

An event is a live object, or the same fields as a mapping with the name of the class under ``type``. The library is
not imported. docs/other-libraries.md prints the table.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import TYPE_CHECKING

from wpriv.core.kinds import Adjacency
from wpriv.errors import Unsupported, UsageError
from wpriv.hints import did_you_mean
from wpriv.numerics.numbers import number, shown, whole

if TYPE_CHECKING:
    from wpriv.core.process import Process

RecipeStep = dict[str, object]
MAX_PARTS = 100_000


@dataclass(frozen=True)
class EventRun:
    """What an event says was run, under one neighbouring relation.

    Args:
        adjacency: the neighbouring relation. steps: as recipes and histories write them.
        unprotected: why no finite eps holds, one sentence for each release without noise; empty for private events.
    """

    adjacency: str
    steps: tuple[RecipeStep, ...] = ()
    unprotected: tuple[str, ...] = ()

    def process(self) -> Process | None:
        """The process of the steps, equal ones merged; None where nothing was released.

        Raises:
            Unsupported: a step has no proven pair under the neighbouring relation. UsageError: a number is out of
                range.
        """
        from wpriv.accounting import build_process, history  # loads scipy

        sizes = [whole(step["records"], "records") for step in self.steps if "records" in step]
        specs, _ = history.merged([{key: step[key] for key in step if key != "records"} for step in self.steps], ())
        if not specs:
            return None
        return build_process.process(specs, self.adjacency or None, records=max(sizes, default=None))


def steps_of(event: object, adjacency: str) -> EventRun:
    """Read a DpEvent as the steps that it stands for.

    Args:
        event: an object of dp_accounting, or a mapping with ``type`` and the fields of the class; events within it
            likewise.
        adjacency: ``add-remove``, ``replace-one`` or ``zero-out`` (REPLACE_SPECIAL). A noise multiplier is relative to
            the largest norm of one record, so that under ``replace-one`` the sensitivity is 2. "" where it is not
            known: no sensitivity is doubled then, and no event refused for the relation.
    Raises:
        Unsupported: an event that is not known here, or has no proven pair.
        UsageError: a field is missing or out of range.
    """
    try:
        return _steps_of(event, adjacency)
    except RecursionError:
        raise Unsupported("samplings of samplings are nested too deeply; give their rate together") from None


def times(run: EventRun, count: int) -> EventRun:
    """The run that is repeated ``count`` times, with fresh noise each."""
    steps = tuple({**step, "n": whole(step["n"], "n") * count} for step in run.steps)
    return replace(run, steps=steps)


def together(runs: Sequence[EventRun], adjacency: str) -> EventRun:
    """The run of several, one after another on one data set.

    Raises:
        UsageError: their largest batches are of data sets of different sizes.
    """
    sizes = sorted({whole(step["records"], "records") for run in runs for step in run.steps if "records" in step})
    if len(sizes) > 1:
        raise UsageError(f"events of one accountant are of one data set; found the sizes {sizes[0]} and {sizes[1]}")
    steps: list[RecipeStep] = []
    for step in (step for run in runs for step in run.steps):
        if steps and {**steps[-1], "n": 0} == {**step, "n": 0}:
            step = {**step, "n": whole(steps.pop()["n"], "n") + whole(step["n"], "n")}
        steps.append(step)
    unprotected = tuple(dict.fromkeys(why for run in runs for why in run.unprotected))
    return EventRun(adjacency, tuple(steps), unprotected)


def _steps_of(event: object, adjacency: str) -> EventRun:
    pending, runs = [(event, 1)], []
    while pending:  # without recursion: events that were composed one by one nest as deeply as there are steps
        event, count = pending.pop()
        name, fields = _fields(event)
        if name == "ComposedDpEvent":
            pending += [(inner, count) for inner in reversed(_list(name, "events", fields))]
        elif name == "SelfComposedDpEvent":
            pending.append((fields["event"], count * _count(name, "count", fields)))
        else:
            run = EVENTS[name].read(name, fields, adjacency)
            runs += [times(run, count)] if count else []
        if len(pending) + len(runs) > MAX_PARTS:
            raise UsageError(f"an event of more than {MAX_PARTS:,} parts is too long; merge equal ones")
    return together(runs, adjacency)


def _fields(event: object) -> tuple[str, dict[str, object]]:
    """The name of the class of an event, and its fields: exactly those that are known of the class."""
    if isinstance(event, Mapping):
        name = str(event.get("type", event.get("class_name", ""))).rpartition(".")[2]
    else:
        name = type(event).__name__
    if name in WITHOUT_PAIR:
        raise Unsupported(f"{name} has no proven pair here: {WITHOUT_PAIR[name]}")
    if isinstance(event, Mapping):
        fields = {str(key): value for key, value in event.items() if key not in NAMING}
        if name not in EVENTS:
            raise UsageError(
                f"no class of events is called {name[:60]!r}; known are {', '.join(EVENTS)}, each under `type`"
            )
    else:
        attributes = getattr(type(event), "__attrs_attrs__", None)
        if attributes is None:
            raise UsageError(f"wanted a DpEvent of dp_accounting, or its fields under `type`; found {shown(event)}")
        fields = {each.name: getattr(event, each.name) for each in attributes}
        if name not in EVENTS:
            raise Unsupported(f"{name:.60} is no class of events that is known here, and has no proven pair")
    known = EVENTS[name].fields
    if missing := [field for field in known if field not in fields and field not in OPTIONAL]:
        raise UsageError(f"{name} needs the field {missing[0]}; found {', '.join(fields) or 'no fields'}")
    if extra := [field for field in fields if field not in known]:
        raise Unsupported(
            f"{name} has no field {extra[0]!r:.60} that is known here{did_you_mean(extra[0], list(known))}"
        )
    return name, fields


def _number(name: str, field: str, fields: Mapping[str, object], most: float = math.inf) -> float:
    """A field that is a finite number of at least 0."""
    if isinstance(fields[field], str):
        raise UsageError(f"{field} of {name} must be a number, and no text; found {shown(fields[field])}")
    value = number(fields[field], f"{field} of {name}")
    if not 0 <= value <= most:
        limits = "at least 0" if math.isinf(most) else f"from 0 to {most:g}"
        raise UsageError(f"{field} of {name} must be {limits}; found {value:g}")
    return value


def _count(name: str, field: str, fields: Mapping[str, object]) -> int:
    """A field that is a whole number of at least 0."""
    value = whole(fields[field], f"{field} of {name}")
    if value < 0:
        raise UsageError(f"{field} of {name} must be at least 0; found {value}")
    return value


def _list(name: str, field: str, fields: Mapping[str, object]) -> Sequence[object]:
    """A field that is a list."""
    value = fields[field]
    if isinstance(value, str) or not isinstance(value, Sequence):
        raise UsageError(f"{field} of {name} is a list; found {shown(value)}")
    return value


def _moved(adjacency: str) -> RecipeStep:
    """The sensitivity of a sum in multiples of the largest norm of a record, where it is not 1."""
    return {"sensitivity": 2} if adjacency == Adjacency.REPLACE_ONE else {}


def _one(adjacency: str, step: RecipeStep) -> EventRun:
    return EventRun(adjacency, ({**step, "n": 1},))


def _open(name: str, field: str, adjacency: str) -> EventRun:
    return EventRun(adjacency, (), (f"{name} with {field} 0 adds no noise",))


def _no_op(name: str, fields: Mapping[str, object], adjacency: str) -> EventRun:
    return EventRun(adjacency)


def _non_private(name: str, fields: Mapping[str, object], adjacency: str) -> EventRun:
    return EventRun(adjacency, (), ("NonPrivateDpEvent: a release without a guarantee",))


def _additive(name: str, fields: Mapping[str, object], adjacency: str) -> EventRun:
    """Gaussian or Laplace noise, relative to the norm of a record."""
    noise = _number(name, "noise_multiplier", fields)
    if noise == 0:
        return _open(name, "noise_multiplier", adjacency)
    kind = {"mech": "gauss", "sigma": noise} if name == "GaussianDpEvent" else {"mech": "laplace", "scale": noise}
    return _one(adjacency, {**kind, **_moved(adjacency)})


def _discrete_laplace(name: str, fields: Mapping[str, object], adjacency: str) -> EventRun:
    """P(x) ~ exp(-a |x|); of a = 0 there is no such distribution, which their accountants take for no noise."""
    rate, norm = _number(name, "noise_parameter", fields), _count(name, "sensitivity", fields)
    if norm == 0:
        return EventRun(adjacency)
    if rate == 0:
        return _open(name, "noise_parameter", adjacency)
    scale = 1 / rate
    if Fraction(scale) * Fraction(rate) > 1:
        scale = math.nextafter(scale, 0.0)
    return _one(
        adjacency,
        {"mech": "discrete-laplace", "scale": scale, "sensitivity": norm * (1 + (adjacency == Adjacency.REPLACE_ONE))},
    )


def _response(name: str, fields: Mapping[str, object], adjacency: str) -> EventRun:
    """One of k answers: the true one, or with probability p a uniform one, which may be true as well."""
    p, answers = _number(name, "noise_parameter", fields, 1.0), _count(name, "num_buckets", fields)
    if answers == 1 or p == 1:
        return EventRun(adjacency)
    if adjacency not in ("", Adjacency.REPLACE_ONE) or answers != 2:
        raise Unsupported(
            f"{name} has a proven pair for two answers under replace-one (REPLACE_ONE); found {answers} answers under "
            f"{adjacency}"
        )
    if p == 0:
        return _open(name, "noise_parameter", adjacency)
    return _one(adjacency, {"mech": "randomized-response", "eps0": math.log(2 - p) - math.log(p)})


def _mixture(name: str, fields: Mapping[str, object], adjacency: str) -> EventRun:
    """Gaussian noise around 0, or around a distance that is drawn: of one distance a Poisson-sampled release."""
    if adjacency == Adjacency.REPLACE_ONE:
        raise Unsupported(f"{name} is defined for neighbours that differ by a record; found {adjacency}")
    sigma = _number(name, "standard_deviation", fields)
    sizes, probabilities = (_list(name, field, fields) for field in ("sensitivities", "sampling_probs"))
    if len(sizes) != len(probabilities):
        raise UsageError(f"{name} needs a probability for each sensitivity; found {len(probabilities)} of {len(sizes)}")
    rows = [
        (abs(number(size, f"a sensitivity of {name}")), number(probability, f"a probability of {name}"))
        for size, probability in zip(sizes, probabilities, strict=True)
    ]
    if any(not probability >= 0 for _, probability in rows) or abs(math.fsum(share for _, share in rows) - 1) > 1e-9:
        raise UsageError(f"the probabilities of {name} are at least 0 and add up to 1; found {shown(probabilities)}")
    moved = {size for size, probability in rows if size and probability}
    rate = math.fsum(probability for size, probability in rows if size)
    if not moved:
        return EventRun(adjacency)
    if sigma == 0:
        return _open(name, "standard_deviation", adjacency)
    if len(moved) > 1:
        raise Unsupported(f"{name} of several distances has no pair here; for a person with m records take `group` m")
    step: RecipeStep = {"mech": "gauss", "sigma": sigma, "sensitivity": moved.pop()}
    return _one(adjacency, step if rate >= 1 else {**step, "sampling": "poisson", "rate": rate})


def _zcdp(name: str, fields: Mapping[str, object], adjacency: str) -> EventRun:
    rho, xi = _number(name, "rho", fields), _number(name, "xi", {"xi": 0.0, **fields})
    if rho == 0 == xi:
        return EventRun(adjacency)
    return _one(adjacency, {"mech": "zcdp", "rho": rho, **({"xi": xi} if xi else {})})


def _tree(name: str, fields: Mapping[str, object], adjacency: str) -> EventRun:
    """Noisy nodes of binary trees: a record is in one leaf, and so in at most as many nodes as t has binary digits."""
    if adjacency not in ("", Adjacency.ZERO_OUT):
        raise Unsupported(f"{name} has a proven pair under zero-out (REPLACE_SPECIAL); found {adjacency}")
    counts = fields["step_counts"]
    listed = counts if isinstance(counts, list | tuple) else [counts]
    depth = max((_count(name, "step_counts", {"step_counts": each}) for each in listed), default=0).bit_length()
    noise = _number(name, "noise_multiplier", fields)
    if depth == 0:
        return EventRun(adjacency)
    if noise == 0:
        return _open(name, "noise_multiplier", adjacency)
    norm = math.sqrt(depth)
    if Fraction(norm) ** 2 < depth:
        norm = math.nextafter(norm, math.inf)
    return _one(adjacency, {"mech": "gauss", "sigma": noise, "sensitivity": norm})


def _poisson(name: str, fields: Mapping[str, object], adjacency: str) -> EventRun:
    rate = _number(name, "sampling_probability", fields, 1.0)
    return _drawn(name, fields["event"], adjacency, rate, {"sampling": "poisson"})


def _fixed(name: str, fields: Mapping[str, object], adjacency: str) -> EventRun:
    size, total = _count(name, "sample_size", fields), _count(name, "source_dataset_size", fields)
    if size > total or total == 0:
        raise UsageError(f"{name}: sample_size must be at most source_dataset_size; found {size} of {total}")
    return _drawn(name, fields["event"], adjacency, size / total, {"sampling": "fixed", "records": total})


def _drawn(name: str, event: object, adjacency: str, rate: float, sampling: RecipeStep) -> EventRun:
    """An event on a part of the records that is drawn once for all that the event releases."""
    run = _steps_of(event, adjacency)
    if rate == 0 or not (run.steps or run.unprotected):
        return EventRun(adjacency)
    if rate == 1 or run.unprotected:
        return run
    step = _single(name, run.steps)
    if "sampling" in step:  # a draw of a draw
        if not step["sampling"] == sampling["sampling"] == "poisson" or "max_batch" in step:
            raise Unsupported(f"{name} of {step['sampling']} sampling has no proven pair; give one rate for both draws")
        rate = min(math.nextafter(number(step["rate"], "rate") * rate, 1.0), 1.0)
    return _one(adjacency, {**step, **sampling, "rate": rate})


def _single(name: str, steps: Sequence[RecipeStep]) -> RecipeStep:
    """Several releases on one and the same batch as one: Gaussian noise alone, whose squared ratios add up."""
    if len(steps) == 1 and steps[0]["n"] == 1:
        return steps[0]
    if any(step["mech"] != "gauss" or "sampling" in step for step in steps):
        raise Unsupported(
            f"{name}: several releases of one sampled batch have a proven pair where all noise is Gaussian. If each "
            f"drew its own batch, compose one {name} for each"
        )
    norm = {"sensitivity": steps[0]["sensitivity"]} if "sensitivity" in steps[0] else {}
    ratios = [_exact(step.get("sensitivity", 1)) / _exact(step["sigma"]) for step in steps]
    total = sum(whole(step["n"], "n") * ratio**2 for step, ratio in zip(steps, ratios, strict=True))
    wanted = _exact(norm.get("sensitivity", 1)) ** 2 / total
    sigma = math.sqrt(wanted)
    while Fraction(sigma) ** 2 > wanted:
        sigma = math.nextafter(sigma, 0.0)
    return {"mech": "gauss", "sigma": sigma, **norm}


def _exact(value: object) -> Fraction:
    return Fraction(number(value, "the noise of a release"))


def _truncated(name: str, fields: Mapping[str, object], adjacency: str) -> EventRun:
    rate, noise = _number(name, "sampling_probability", fields, 1.0), _number(name, "noise_multiplier", fields)
    records, most = _count(name, "dataset_size", fields), _count(name, "truncated_batch_size", fields)
    if 0 in (rate, records, most):
        return EventRun(adjacency)
    if noise == 0:
        return _open(name, "noise_multiplier", adjacency)
    step: RecipeStep = {"mech": "gauss", "sigma": noise, **_moved(adjacency)}
    if most >= records:
        return _one(adjacency, step if rate == 1 else {**step, "sampling": "poisson", "rate": rate})
    return _one(adjacency, {**step, "sampling": "poisson", "rate": rate, "max_batch": most, "records": records})


@dataclass(frozen=True)
class _Event:
    """A class of events: its fields, and the function that reads them (name, fields, adjacency)."""

    fields: tuple[str, ...]
    read: Callable[[str, Mapping[str, object], str], EventRun] = _no_op


_CUT = ("dataset_size", "sampling_probability", "truncated_batch_size", "noise_multiplier")
EVENTS = {
    "NoOpDpEvent": _Event(()),
    "NonPrivateDpEvent": _Event((), _non_private),
    # these two are taken apart by ``steps_of``
    "ComposedDpEvent": _Event(("events",)),
    "SelfComposedDpEvent": _Event(("event", "count")),
    "GaussianDpEvent": _Event(("noise_multiplier",), _additive),
    "LaplaceDpEvent": _Event(("noise_multiplier",), _additive),
    "DiscreteLaplaceDpEvent": _Event(("noise_parameter", "sensitivity"), _discrete_laplace),
    "RandomizedResponseDpEvent": _Event(("noise_parameter", "num_buckets"), _response),
    "PoissonSampledDpEvent": _Event(("sampling_probability", "event"), _poisson),
    "SampledWithoutReplacementDpEvent": _Event(("source_dataset_size", "sample_size", "event"), _fixed),
    "TruncatedSubsampledGaussianDpEvent": _Event(_CUT, _truncated),
    "MixtureOfGaussiansDpEvent": _Event(("standard_deviation", "sensitivities", "sampling_probs"), _mixture),
    "SingleEpochTreeAggregationDpEvent": _Event(("noise_multiplier", "step_counts"), _tree),
    "ZCDpEvent": _Event(("rho", "xi"), _zcdp),
}
OPTIONAL = ("xi",)
# keys of an event as data that say of which class it is
NAMING = ("type", "class_name", "module", "module_name")
WITHOUT_PAIR = {
    "UnsupportedDpEvent": "it says itself that nothing is known of it",
    "SampledWithReplacementDpEvent": "draws with replacement hold several copies of a record; give what ran as "
    "premises with sampling.kind=weighted, sampling.max_weight and sampling.batch",
    "RepeatAndSelectDpEvent": "the best of a random number of runs is accounted for by `wpriv budget --repeats`",
    "RandomAllocationDpEvent": "give the mechanism with sampling.kind=allocation as premises",
}
