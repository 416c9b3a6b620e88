"""Events and accountants of dp_accounting: what was composed, as steps; live objects, JSON under ``type``, or reprs."""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from wpriv.checks.premises import Fact, Found, StepSpec
from wpriv.checks.readers import _documents
from wpriv.checks.readers._documents import count, items, mapping, real
from wpriv.errors import Unsupported, UsageError

NAME = "dp_accounting"
# the attributes of each class of events
EVENTS = {
    "NoOpDpEvent": (),
    "NonPrivateDpEvent": (),
    "UnsupportedDpEvent": (),
    "GaussianDpEvent": ("noise_multiplier",),
    "LaplaceDpEvent": ("noise_multiplier",),
    "DiscreteLaplaceDpEvent": ("noise_parameter", "sensitivity"),
    "RandomizedResponseDpEvent": ("noise_parameter", "num_buckets"),
    "SelfComposedDpEvent": ("event", "count"),
    "ComposedDpEvent": ("events",),
    "PoissonSampledDpEvent": ("sampling_probability", "event"),
    "SampledWithReplacementDpEvent": ("source_dataset_size", "sample_size", "event"),
    "SampledWithoutReplacementDpEvent": ("source_dataset_size", "sample_size", "event"),
    "TruncatedSubsampledGaussianDpEvent": (
        *("dataset_size", "sampling_probability", "truncated_batch_size", "noise_multiplier"),
    ),
    "MixtureOfGaussiansDpEvent": ("standard_deviation", "sensitivities", "sampling_probs"),
    "RepeatAndSelectDpEvent": ("event", "mean", "shape"),
    "SingleEpochTreeAggregationDpEvent": ("noise_multiplier", "step_counts"),
    "RandomAllocationDpEvent": ("event", "num_compositions", "num_participations"),
    "ZCDpEvent": ("rho", "xi"),
}
RELATIONS = {"ADD_OR_REMOVE_ONE": "add-remove", "REPLACE_ONE": "replace-one", "REPLACE_SPECIAL": "zero-out"}
# why there is no pair of the others
NO_PAIR = {
    "UnsupportedDpEvent": "it says itself that nothing is known of it",
    "SampledWithReplacementDpEvent": "draws with replacement hold several copies of a record, and no pair of them is "
    "proven here; give what ran as premises with sampling.kind=weighted, sampling.max_weight and sampling.batch",
    "RepeatAndSelectDpEvent": "the best of a random number of runs is accounted for by `wpriv budget --repeats`",
    "RandomAllocationDpEvent": "give the mechanism with sampling.kind=allocation as premises",
}
_REPR = re.compile(r"(?:[\w.]*\.)?(\w+DpEvent|ZCDpEvent)\(")
MAX_KINDS = 100_000


def recognises(x: object) -> bool:
    """Tell whether x is an event, an accountant, or a file of an event as JSON or as a repr."""
    if isinstance(x, Path):
        if _REPR.match(str(x)) or _REPR.match(_documents.head(x)):
            return True
        named = re.match(r'\{\s*"type":\s*"(\w+)"', _documents.head(x))
        return _documents.is_json_object(x, "type") and (named is None or is_event(named[1]))
    return is_event(type(x).__name__) or _is_accountant(x)


def is_event(name: str) -> bool:
    """Tell whether a class has the name of one of events, known here or not."""
    return name in EVENTS or name.endswith("DpEvent")


def _is_accountant(x: object) -> bool:
    return hasattr(x, "_ledger") and hasattr(x, "_neighboring_relation")


def read(x: object, further: Mapping[str, object]) -> Found:
    """Read what was composed. Of an accountant also its neighbours and, with ``delta``, its eps."""
    if _is_accountant(x):
        return _of_accountant(x, further.get("delta"))
    if isinstance(x, Path):
        data = _documents.parse(str(x), NAME) if _REPR.match(str(x)) else _documents.document(x)
    else:
        data = _documents.plain_data(x, EVENTS)
    steps = steps_of(data)
    return with_noise(Found(NAME, tuple(facts_of(steps)), steps, read=("DpEvent",)))


def _of_accountant(x: object, delta: object) -> Found:
    """The events of an accountant with its relation, under which its class decides what a noise multiplier means."""
    ledger = getattr(x, "_ledger", None)
    pairs = items(getattr(ledger, "_event_counts", None), "the events of the accountant")
    events: list[object] = []
    for pair in pairs:
        event, times = items(pair, "an event of the accountant")
        events.append({"type": "SelfComposedDpEvent", "event": _documents.plain_data(event, EVENTS), "count": times})
    steps = steps_of({"type": "ComposedDpEvent", "events": events})
    relation = RELATIONS.get(str(getattr(getattr(x, "_neighboring_relation", None), "name", "")), "")
    kind = "rdp" if "rdp" in _documents.class_path(x).lower() else "pld"
    facts = []
    if relation:
        facts.append(Fact("adjacency", relation, where=f"the accountant's neighboring_relation is {relation}"))
    if relation == "replace-one":
        # PLD takes a noise multiplier for one of add-remove neighbours, and RDP for one of the neighbours at hand
        factor = 2.0 if kind == "pld" else 1.0
        steps = tuple({"sensitivity": factor, **step} if "sigma" in step else step for step in steps)
    if relation == "zero-out" and any(step["mech"] == "randomized-response" for step in steps):
        raise Unsupported("RandomizedResponseDpEvent under REPLACE_SPECIAL: no pair with a uniform answer is here")
    facts += [*facts_of(steps), Fact("claim.by", f"{NAME} {kind}")]
    if isinstance(delta, (int, float)) and type(x).__module__.startswith("dp_accounting."):
        eps = float(getattr(x, "get_epsilon")(delta))  # noqa: B009  # reads its state alone
        if math.isfinite(eps):
            facts += [Fact("claim.eps", eps, where="get_epsilon"), Fact("claim.delta", delta, where="get_epsilon")]
    return with_noise(Found(NAME, tuple(facts), steps, read=("ledger", f"neighbours {relation or 'unknown'}")))


def facts_of(steps: Iterable[StepSpec]) -> Iterable[Fact]:
    """The premises that an event shows where its steps are of one kind, and how records were drawn in any case."""
    steps = tuple(steps)
    kinds = {str(step["sampling"]) for step in steps if "sampling" in step}
    if len(kinds) == 1 or (steps and not kinds):
        yield Fact("sampling.kind", next(iter(kinds), "none"), where="the classes of the event")
    if len(steps) == 1:
        step = steps[0]
        if "rate" in step:
            yield Fact("sampling.rate_accounted", step["rate"], where="the event")  # type: ignore[arg-type]
        if "sigma" in step:
            multiplier = float(step["sigma"]) / float(step.get("sensitivity", 1))  # type: ignore[arg-type]
            yield Fact("noise.multiplier", multiplier, where="the event")
        yield Fact("steps_accounted", step["n"], where="the event")  # type: ignore[arg-type]
        if "max_batch" in step:
            yield Fact("sampling.truncated", step["max_batch"], where="the event")  # type: ignore[arg-type]
            yield Fact("records", step["records"], where="the event")  # type: ignore[arg-type]


def steps_of(event: object) -> tuple[StepSpec, ...]:
    """The steps of an event as plain data, in the order of their composition, with equal neighbours merged.

    Raises:
        UsageError: a class is unknown, or a field is missing, of another type or out of range.
        Unsupported: of a class no pair is proven here.
    """
    steps: list[dict[str, object]] = []
    stack: list[tuple[object, int]] = [(event, 1)]
    while stack:
        node, n = stack.pop()
        data = mapping(node, "an event")
        name = _name(data)
        if name == "NoOpDpEvent" or n == 0:
            continue
        if name == "SelfComposedDpEvent":
            stack.append((data.get("event"), n * count(data, "count", name)))
        elif name == "ComposedDpEvent":
            stack += [(each, n) for each in reversed(items(data.get("events"), f"events of {name}"))]
        elif (step := _step(name, data)) is not None:
            if steps and {**steps[-1], "n": 0} == {**step, "n": 0}:
                step["n"] = steps.pop()["n"] + n  # type: ignore[operator]
            else:
                step["n"] = n
            steps.append(step)
        if len(steps) + len(stack) > MAX_KINDS:
            raise UsageError(f"an event of more than {MAX_KINDS:,} parts is too long; merge equal ones")
    return tuple(steps)


def _name(data: Mapping[str, object]) -> str:
    name = str(data.get("type", data.get("class_name", ""))).rpartition(".")[2]
    if name not in EVENTS:
        raise UsageError(
            f"no class of events is called {name[:60]!r}; known are {', '.join(EVENTS)}, each under `type`"
        )
    return name


def _step(name: str, data: Mapping[str, object]) -> dict[str, object] | None:
    """The step of one release; None where nothing is released."""
    if name in NO_PAIR:
        raise Unsupported(f"{name} of dp_accounting: {NO_PAIR[name]}")
    if name == "PoissonSampledDpEvent":
        rate = real(data, "sampling_probability", name)
        inner, further = _sampled(data.get("event"))
        return _drawn(inner, {"sampling": "poisson", "rate": rate * further}, rate * further)
    if name == "SampledWithoutReplacementDpEvent":
        size, source = count(data, "sample_size", name), count(data, "source_dataset_size", name)
        if not 0 < size <= source:
            raise UsageError(f"{name} draws {size} of {source} records")
        inner, further = _sampled(data.get("event"))
        if further != 1:
            raise Unsupported(f"{name} of a PoissonSampledDpEvent: no pair of sampling within sampling is proven here")
        return _drawn(inner, {"sampling": "fixed", "rate": size / source, "records": source}, size / source)
    return _release(name, data)


def _drawn(inner: dict[str, object] | None, sampling: dict[str, object], rate: float) -> dict[str, object] | None:
    if rate > 1:
        raise UsageError(f"a sampling probability must be at most 1; found {rate:g}")
    if inner is None or rate == 0:
        return None
    return {**inner, **(sampling if rate < 1 else {})}


def _sampled(event: object) -> tuple[dict[str, object] | None, float]:
    """The one release that an event on drawn records amounts to, and the probability of Poisson sampling within it.

    Several Gaussian releases of one batch are one release of less noise, since their weighted mean is sufficient.
    """
    rate, precision, others = 1.0, 0.0, list[dict[str, object]]()
    stack: list[tuple[object, int]] = [(event, 1)]
    while stack:
        node, n = stack.pop()
        data = mapping(node, "the event of a sampled one")
        name = _name(data)
        if name == "SelfComposedDpEvent":
            stack.append((data.get("event"), n * count(data, "count", name)))
        elif name == "ComposedDpEvent":
            stack += [(each, n) for each in items(data.get("events"), f"events of {name}")]
        elif name == "PoissonSampledDpEvent" and not stack and n == 1 and not others and not precision:
            rate *= real(data, "sampling_probability", name)
            stack.append((data.get("event"), 1))
        elif name in ("PoissonSampledDpEvent", "SampledWithoutReplacementDpEvent"):
            raise Unsupported(f"{name} within a sampled event: no pair of sampling within sampling is proven here")
        elif (step := _step(name, data)) is not None and n:
            sigma = step.get("sigma")
            if isinstance(sigma, float) and sigma > 0 and "sampling" not in step and "sensitivity" not in step:
                precision += n / sigma**2
            else:
                others += [step] * min(n, 2)
    if others and (len(others) > 1 or precision):
        raise Unsupported("several releases of one sampled batch are only composed here where their noise is Gaussian")
    if others:
        return others[0], rate
    return ({"mech": "gauss", "sigma": precision**-0.5}, rate) if precision else (None, rate)


def _release(name: str, data: Mapping[str, object]) -> dict[str, object] | None:
    """The step of one release on all records."""
    if name == "NonPrivateDpEvent":
        return {"mech": "gauss", "sigma": 0.0}
    if name == "GaussianDpEvent":
        return {"mech": "gauss", "sigma": real(data, "noise_multiplier", name)}
    if name == "LaplaceDpEvent":
        return {"mech": "laplace", "scale": real(data, "noise_multiplier", name)}
    if name == "DiscreteLaplaceDpEvent":
        a = real(data, "noise_parameter", name)
        sensitivity = count(data, "sensitivity", name)
        if not sensitivity:
            return None
        return {"mech": "discrete-laplace", "scale": 1 / a, "sensitivity": sensitivity} if a else _without_noise()
    if name == "TruncatedSubsampledGaussianDpEvent":
        rate, most = real(data, "sampling_probability", name), count(data, "truncated_batch_size", name)
        size = count(data, "dataset_size", name)
        sampling = {"sampling": "poisson", "rate": rate, "max_batch": most, "records": size}
        step = {"mech": "gauss", "sigma": real(data, "noise_multiplier", name)}
        return _drawn(step if most and size else None, sampling, rate)
    if name == "ZCDpEvent":
        xi = real(data, "xi", name) if data.get("xi") else 0.0
        rho = real(data, "rho", name)
        return {"mech": "zcdp", "rho": rho, **({"xi": xi} if xi else {})}
    if name == "SingleEpochTreeAggregationDpEvent":
        counts = data.get("step_counts")
        leaves = [count({"steps": each}, "steps", name) for each in (counts if isinstance(counts, list) else [counts])]
        # a record is in one leaf of one tree, and in the nodes above it
        depth = max(leaves, default=0).bit_length()
        sigma = real(data, "noise_multiplier", name)
        return {"mech": "gauss", "sigma": sigma, "sensitivity": math.sqrt(depth)} if depth else None
    if name == "RandomizedResponseDpEvent":
        return _randomized_response(real(data, "noise_parameter", name), count(data, "num_buckets", name))
    return _mixture(data, name)


def _without_noise() -> dict[str, object]:
    return {"mech": "gauss", "sigma": 0.0}


def _randomized_response(p: float, buckets: int) -> dict[str, object] | None:
    """The answer of two buckets, which is the worst mechanism at its privacy loss; of more it is not."""
    if p > 1 or buckets < 1:
        raise UsageError(f"RandomizedResponseDpEvent has a probability up to 1 and buckets; found {p:g} and {buckets}")
    if p == 1 or buckets == 1:
        return None
    if p == 0:
        return _without_noise()
    if buckets > 2:
        table = "give the probabilities of its outcomes under both neighbours as a table of `mech: histogram`"
        raise Unsupported(f"RandomizedResponseDpEvent of {buckets} buckets: {table}")
    return {"mech": "randomized-response", "eps0": math.log1p(2 * (1 - p) / p)}


def _mixture(data: Mapping[str, object], name: str) -> dict[str, object] | None:
    """A mixture of Gaussians whose shifts are 0 and at most one other: Gaussian noise under Poisson sampling."""
    shifts = items(data.get("sensitivities"), f"sensitivities of {name}")
    probabilities = items(data.get("sampling_probs"), f"sampling_probs of {name}")
    if len(shifts) != len(probabilities):
        raise UsageError(f"{name} has {len(shifts)} sensitivities and {len(probabilities)} probabilities")
    masses: dict[float, float] = {}
    for shift, mass in zip(shifts, probabilities, strict=True):
        each = real({"sensitivity": shift}, "sensitivity", name)
        masses[each] = masses.get(each, 0.0) + real({"probability": mass}, "probability", name)
    if abs(math.fsum(masses.values()) - 1) > 1e-9:
        raise UsageError(f"the probabilities of {name} must add up to 1; found {math.fsum(masses.values()):g}")
    moved = {shift: mass for shift, mass in masses.items() if shift and mass}
    if len(moved) > 1:
        raise Unsupported(f"{name} with {len(moved)} different shifts: no pair of it is proven here")
    if not moved:
        return None
    shift, mass = next(iter(moved.items()))
    step = {"mech": "gauss", "sigma": real(data, "standard_deviation", name), "sensitivity": shift}
    return _drawn(step, {"sampling": "poisson", "rate": min(mass, 1.0)}, min(mass, 1.0))


def with_noise(found: Found) -> Found:
    """What an event without noise shows: steps of no noise become the premise that no noise was added."""
    silent = [step for step in found.accounted if step.get("sigma") == 0]
    if not silent:
        return found
    fact = Fact("noise.multiplier", 0.0, where="the event has a release without noise")
    facts = tuple(each for each in found.facts if each.field != "noise.multiplier")
    return dataclasses.replace(found, facts=(*facts, fact), accounted=())
