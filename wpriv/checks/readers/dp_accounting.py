"""Events and accountants of dp_accounting: what was composed, as steps; live objects, JSON, or reprs."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Mapping
from pathlib import Path

from wpriv.checks import dp_events
from wpriv.checks.premises import Fact, Found, StepSpec
from wpriv.checks.readers import _documents
from wpriv.checks.readers._documents import items
from wpriv.errors import Unsupported

NAME = "dp_accounting"
# the attributes of each class of events
EVENTS = {name: event.fields for name, event in dp_events.EVENTS.items()} | dict.fromkeys(dp_events.WITHOUT_PAIR, ())
RELATIONS = {"ADD_OR_REMOVE_ONE": "add-remove", "REPLACE_ONE": "replace-one", "REPLACE_SPECIAL": "zero-out"}


def recognises(x: object) -> bool:
    """Tell whether x is an event, an accountant, or a file of an event as JSON or as a repr."""
    if isinstance(x, Path):
        return is_event(_documents.type_of(x))
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
    data = _documents.object_of(x, NAME) if isinstance(x, Path) else _documents.plain_data(x, EVENTS)
    steps = steps_of(data)
    return with_noise(Found(NAME, tuple(facts_of(steps)), tuple(map(_of_record, steps)), read=("DpEvent",)))


def _of_record(step: StepSpec) -> StepSpec:
    """A step of which the noise is relative to one record, so that replacing one changes twice that."""
    if step["mech"] != "gauss" or "sensitivity" in step:
        return step
    return {"mech": "gauss", "noise_multiplier": step["sigma"], **{key: step[key] for key in step if key != "sigma"}}


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
    own, path = type(x).__module__ == "wpriv.dp_accounting", _documents.class_path(x).lower()
    kind = "wpriv" if own else "rdp" if "rdp" in path else "pld"
    facts = []
    if relation:
        facts.append(Fact("adjacency", relation, where=f"the accountant's neighboring_relation is {relation}"))
    if relation == "replace-one":
        # PLD and wpriv take a noise multiplier for one of add-remove neighbours, RDP for one of the neighbours at hand
        factor = 1.0 if kind == "rdp" else 2.0
        steps = tuple({"sensitivity": factor, **step} if "sigma" in step else step for step in steps)
    if relation == "zero-out" and any(step["mech"] == "randomized-response" for step in steps):
        raise Unsupported("RandomizedResponseDpEvent under REPLACE_SPECIAL: no pair with a uniform answer is here")
    facts += [*facts_of(steps), Fact("claim.by", f"{NAME} {kind}")]
    if isinstance(delta, (int, float)) and (own or type(x).__module__.startswith("dp_accounting.")):
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
        if (noise := step.get("sigma", step.get("noise_multiplier"))) is not None:
            multiplier = float(noise) / float(step.get("sensitivity", 1))  # type: ignore[arg-type]
            yield Fact("noise.multiplier", multiplier, where="the event")
        yield Fact("steps_accounted", step["n"], where="the event")  # type: ignore[arg-type]
        if "max_batch" in step:
            yield Fact("sampling.truncated", step["max_batch"], where="the event")  # type: ignore[arg-type]
            yield Fact("records", step["records"], where="the event")  # type: ignore[arg-type]


def steps_of(event: object) -> tuple[StepSpec, ...]:
    """The steps of an event as plain data, in the order of their composition, with equal neighbours merged.

    A release without noise is Gaussian noise of sigma 0. See ``dp_events.steps_of`` for what is refused.
    """
    run = dp_events.steps_of(event, "")
    silent = ({"mech": "gauss", "sigma": 0.0, "n": 1},) if run.unprotected else ()
    return (*silent, *run.steps)


def with_noise(found: Found) -> Found:
    """What an event without noise shows: steps of no noise become the premise that no noise was added."""
    if all(step.get("sigma", step.get("noise_multiplier")) != 0 for step in found.accounted):
        return found
    fact = Fact("noise.multiplier", 0.0, where="the event has a release without noise")
    facts = tuple(each for each in found.facts if each.field != "noise.multiplier")
    return dataclasses.replace(found, facts=(*facts, fact), accounted=(), ran=())
