"""Events and accountants of dp_accounting: what was composed, as steps; live objects, JSON, or reprs."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from wpriv.accounting import history
from wpriv.checks import dp_events
from wpriv.checks.premises import Fact, Found, StepSpec
from wpriv.checks.readers import _documents
from wpriv.checks.readers._documents import items
from wpriv.errors import UnknownName, Unsupported

NAME = "dp_accounting"
# the attributes of each class of events, those without a proven pair without attributes
TABLE = {**{name: each.fields for name, each in dp_events.EVENTS.items()}, **dict.fromkeys(dp_events.WITHOUT_PAIR, ())}
RELATIONS = {"ADD_OR_REMOVE_ONE": "add-remove", "REPLACE_SPECIAL": "zero-out", "REPLACE_ONE": "replace-one"}


def recognises(x: object) -> bool:
    """Tell whether x is an event, an accountant, or a file of an event as JSON or as a repr."""
    if isinstance(x, Path):
        return is_event(_documents.type_of(x))
    return is_event(type(x).__name__) or _is_accountant(x)


def is_event(name: str) -> bool:
    """Tell whether a class has the name of one of events, known here or not."""
    return name in TABLE or name.endswith("DpEvent")


def _is_accountant(x: object) -> bool:
    return hasattr(x, "_ledger") and hasattr(x, "_neighboring_relation")


def read(x: object, further: Mapping[str, object]) -> Found:
    """Read what was composed. Of an accountant also its neighbours and, with ``delta``, its eps."""
    if _is_accountant(x):
        return _of_accountant(x, further.get("delta"))
    data = _documents.object_of(x, NAME) if isinstance(x, Path) else _documents.plain_data(x, TABLE)
    relation, run = _of_event(data)
    steps = steps_of(run)
    facts = [*facts_of(steps)]
    if relation != "add-remove":
        facts.append(Fact("adjacency", relation, where="its mechanism is defined for these neighbours"))
    else:
        steps = tuple(map(_of_record, steps))
    return without_noise(Found(NAME, tuple(facts), steps, read=("DpEvent",)), run.unprotected)


def _of_record(step: StepSpec) -> StepSpec:
    """A step of which the noise is relative to one record, so that replacing one changes twice that."""
    if step["mech"] != "gauss" or step.get("sensitivity") != 1:
        return step
    rest = {key: value for key, value in step.items() if key not in ("mech", "sigma", "sensitivity")}
    return {"mech": "gauss", "noise_multiplier": step["sigma"], **rest}


def _of_event(data: object) -> tuple[str, dp_events.EventRun]:
    """The run of an event without an accountant, under the first relation that it has a pair for."""
    pending = [data]
    while pending:
        node = pending.pop()
        name = str(node.get("type")) if isinstance(node, dict) else ""
        if isinstance(node, dict) and name.rpartition(".")[2] not in TABLE:
            raise UnknownName("event", name, list(TABLE))
        pending += node.values() if isinstance(node, dict) else node if isinstance(node, list) else []
    refusal: Unsupported | None = None
    for relation in RELATIONS.values():
        try:
            return relation, dp_events.steps_of(data, relation)
        except Unsupported as error:
            refusal = refusal or error
    assert refusal is not None
    raise refusal


def event_steps(data: object) -> tuple[StepSpec, ...]:
    """The steps of an event as plain data, whose noise is relative to what a neighbour changes.

    Raises:
        UsageError: a class is unknown, or a field is missing, of another type or out of range.
        Unsupported: of a class no pair is proven here, or it adds no noise.
    """
    _, run = _of_event(data)
    if run.unprotected:
        raise Unsupported(f"{run.unprotected[0]}: no finite eps holds")
    return steps_of(run)


def steps_of(run: dp_events.EventRun) -> tuple[StepSpec, ...]:
    """The steps of a run with equal ones merged; those of largest batches with the number of records."""
    steps, _ = history.merged([dict(step) for step in run.steps], ())
    return tuple({**step, "records": run.records} if "max_batch" in step else step for step in steps)


def _of_accountant(x: object, delta: object) -> Found:
    """The events of an accountant with its relation, under which its class decides what a noise multiplier means."""
    pairs = items(getattr(getattr(x, "_ledger", None), "_event_counts", None), "the events of the accountant")
    events = []
    for pair in pairs:
        event, times = items(pair, "an event of the accountant")
        events.append({"type": "SelfComposedDpEvent", "event": _documents.plain_data(event, TABLE), "count": times})
    relation = RELATIONS.get(str(getattr(getattr(x, "_neighboring_relation", None), "name", "")), "add-remove")
    kind = "rdp" if "rdp" in _documents.class_path(x).lower() else "pld"
    run = dp_events.steps_of({"type": "ComposedDpEvent", "events": events}, relation)
    steps = steps_of(run)
    if (relation, kind) == ("replace-one", "rdp"):
        # PLD takes noise for relative to what one record adds, and RDP for relative to what a replacement changes
        steps = tuple({**step, "sensitivity": 1} if "sensitivity" in step else step for step in steps)
    facts = [
        Fact("adjacency", relation, where=f"the accountant's neighboring_relation is {relation}"),
        Fact("claim.by", f"{NAME} {kind}"),
        *facts_of(steps),
    ]
    if isinstance(delta, (int, float)) and type(x).__module__.startswith("dp_accounting."):
        eps = float(getattr(x, "get_epsilon")(delta))  # noqa: B009  # reads its state alone
        if math.isfinite(eps):
            facts += [Fact("claim.eps", eps, where="get_epsilon"), Fact("claim.delta", delta, where="get_epsilon")]
    found = Found(NAME, tuple(facts), steps, read=("ledger", f"neighbours {relation}"))
    return without_noise(found, run.unprotected)


def facts_of(steps: Sequence[StepSpec]) -> Iterator[Fact]:
    """The premises that steps show where they are of one kind, and how records were drawn in any case."""
    kinds = {str(step["sampling"]) for step in steps if "sampling" in step}
    if len(kinds) == 1 or (steps and not kinds):
        yield Fact("sampling.kind", next(iter(kinds), "none"), where="the classes of the event")
    if len(steps) == 1:
        step = steps[0]
        shown = {"sampling.rate_accounted": "rate", "steps_accounted": "n", "sampling.truncated": "max_batch"}
        shown |= {"records": "records"} if "max_batch" in step else {}
        for field, key in shown.items():
            if key in step:
                yield Fact(field, step[key], where="the event")  # type: ignore[arg-type]
        if "sigma" in step or "noise_multiplier" in step:
            noise = step.get("sigma", step.get("noise_multiplier"))
            multiplier = float(noise) / float(step.get("sensitivity", 1))  # type: ignore[arg-type]
            yield Fact("noise.multiplier", multiplier, where="the event")


def without_noise(found: Found, reasons: Sequence[str]) -> Found:
    """What was found, with the premise that no noise was added where there is a reason to say so."""
    if not reasons:
        return found
    facts = tuple(fact for fact in found.facts if fact.field != "noise.multiplier")
    silent = Fact("noise.multiplier", 0.0, where=reasons[0])
    return dataclasses.replace(found, facts=(*facts, silent), accounted=())
