"""Flower: the state of an accountant, strategies with differential privacy, a client's local modifier, and results."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path

from wpriv.checks.premises import Fact, Found, StepSpec
from wpriv.checks.readers import _documents
from wpriv.checks.readers._documents import count, items, mapping, real
from wpriv.errors import UsageError

NAME = "flower"
STATE = ("config", "compositions")
RELATIONS = {"add-or-remove-one": "add-remove", "replace-one": "replace-one"}
METHODS = {"poisson": "poisson", "without-replacement": "fixed", "no-amplification": "none"}
LOCAL = ("clipping_norm", "sensitivity", "epsilon", "delta")

# keywords of ``check`` that this reader takes besides the objects of all
FURTHER = ("replies",)


def recognises(x: object) -> bool:
    """Tell whether x is an accountant or its state, a strategy with noise, a local modifier, or a result."""
    if isinstance(x, Path):
        return _documents.is_json_object(x, *STATE)
    if isinstance(x, Mapping):
        return all(key in x for key in STATE)
    return _is_accountant(x) or _is_strategy(x) or type(x).__name__ == "LocalDpMod" or _is_result(x)


def _is_accountant(x: object) -> bool:
    return hasattr(x, "_compositions") and hasattr(x, "_config")


def _is_strategy(x: object) -> bool:
    return hasattr(x, "noise_multiplier") and hasattr(x, "num_sampled_clients")


def _is_result(x: object) -> bool:
    return hasattr(x, "train_metrics_clientapp")


def read(x: object, further: Mapping[str, object]) -> Found:
    """Read an accountant with ``strategy``, a strategy with the ``replies`` of a round, a modifier, or a result.

    ``replies`` are messages of clients, mappings with the key of their weights, or the weights themselves.
    """
    if _is_result(x):
        return _result(x)
    if type(x).__name__ == "LocalDpMod":
        return _local({name: getattr(x, name, None) for name in LOCAL})
    if _is_strategy(x):
        account = getattr(x, "accountant", None)
        return _strategy(x, further.get("replies"), None if account is None else _account(_live(account)))
    if isinstance(x, Path):
        state = mapping(_documents.document(x), str(x))
    else:
        state = x if isinstance(x, Mapping) else _live(x)
    found = _account(state)
    strategy = further.get("strategy")
    return found if strategy is None else _strategy(strategy, further.get("replies"), found)


def _live(accountant: object) -> Mapping[str, object]:
    """The state of a live accountant by its attributes, in the form of its ``state_dict()``."""
    config, compositions = getattr(accountant, "_config", None), []
    names = ("target_delta", "population_size", "neighboring_relation", "sampling_method", "max_epsilon")
    for pair in items(getattr(accountant, "_compositions", None), "the compositions of the accountant"):
        event, times = items(pair, "a composition of the accountant")
        fields = ("noise_multiplier", "sample_size", "population_size")
        compositions.append({"event": {name: getattr(event, name, None) for name in fields}, "count": times})
    values = {name: getattr(config, name, None) for name in names}
    return {"config": {key: getattr(each, "value", each) for key, each in values.items()}, "compositions": compositions}


def _account(state: Mapping[str, object]) -> Found:
    """The releases that an accountant composed; to it z is relative to what a neighbour changes."""
    config = mapping(state.get("config"), "config")
    relation = RELATIONS.get(str(config.get("neighboring_relation")))
    kind = METHODS.get(str(config.get("sampling_method")))
    if relation is None or kind is None:
        raise UsageError(
            f"the accountant of Flower has a neighboring_relation of {', '.join(RELATIONS)} and a sampling_method of "
            f"{', '.join(METHODS)}; found {config.get('neighboring_relation')!r} and {config.get('sampling_method')!r}"
        )
    steps: list[StepSpec] = []
    for index, row in enumerate(items(state.get("compositions"), "compositions"), 1):
        name = f"composition {index}"
        composition = mapping(row, name)
        event = mapping(composition.get("event"), f"event of {name}")
        n, z = count(composition, "count", name), real(event, "noise_multiplier", name)
        sample, population = count(event, "sample_size", name), count(event, "population_size", name)
        if not 0 < sample <= population:
            raise UsageError(f"{name} draws {sample} of {population} clients")
        drawn: dict[str, object] = {"sampling": kind, "rate": sample / population} if kind != "none" else {}
        if sample == population:
            drawn = {}
        relative: dict[str, object] = {"sensitivity": 1} if relation == "replace-one" else {}
        if n:
            steps.append({"mech": "gauss", "sigma": z, **relative, **drawn, "n": n})
    rounds = sum(int(step["n"]) for step in steps)  # type: ignore[call-overload]
    facts = [
        Fact("claim.delta", real(config, "target_delta", "config"), where="target_delta"),
        Fact("claim.by", "flower rdp"),
        Fact("adjacency", relation, where="neighboring_relation"),
        Fact("records", count(config, "population_size", "config"), where="population_size"),
        Fact("unit", "client", where="Flower accounts for clients"),
        Fact("clip.per", "client", where="Flower clips updates of clients"),
        Fact("steps", rounds, where="compositions of the accountant"),
        Fact("steps_source", "history"),
    ]
    if kind != "poisson":  # Flower draws a number of clients without replacement; it has no Poisson sampling of its own
        facts.append(Fact("sampling.kind", kind, where=f"sampling_method is {config.get('sampling_method')}"))
    if len(steps) == 1:
        facts.append(Fact("noise.multiplier", steps[0]["sigma"], where="noise_multiplier"))  # type: ignore[arg-type]
        if "rate" in steps[0]:
            rate = steps[0]["rate"]
            facts.append(Fact("sampling.rate_accounted", rate, where="sample_size / population_size"))  # type: ignore[arg-type]
    return Found(NAME, tuple(facts), tuple(steps), read=(f"accountant of {rounds} rounds",))


def _strategy(strategy: object, replies: object, account: Found | None) -> Found:
    """A strategy, with its accountant: Gaussian noise of z C / m on a mean of m clients, whose weights may differ."""
    name = type(strategy).__name__
    data = {key: getattr(strategy, key, None) for key in ("noise_multiplier", "num_sampled_clients")}
    z, clients = real(data, "noise_multiplier", name), count(data, "num_sampled_clients", name)
    inner = getattr(strategy, "strategy", None)
    key = str(getattr(inner, "weighted_by_key", "num-examples"))
    facts = [
        Fact("noise.multiplier", z, where=f"noise_multiplier of {name}"),
        Fact("unit", "client", where=name),
        Fact("clip.per", "client", where=name),
        Fact("sampling.batch", clients, where="num_sampled_clients"),
    ]
    norm = getattr(strategy, "clipping_norm", getattr(strategy, "clip_norm", None))
    if isinstance(norm, (int, float)):
        facts.append(Fact("clip.norm", norm, where="clipping_norm"))
    fraction = getattr(inner, "fraction_train", getattr(inner, "fraction_fit", None))
    if isinstance(fraction, (int, float)) and 0 < fraction < 1:
        facts.append(Fact("sampling.rate", fraction, where="fraction of clients in a round"))
    count_std = getattr(strategy, "clipped_count_stddev", None)
    if isinstance(count_std, (int, float)) and count_std > 0:
        words = "clipped_count_stddev"
        facts += [Fact("clip.adaptive", "noisy", where=words), Fact("clip.count_std", count_std, where=words)]
    if (
        account is not None and getattr(strategy, "accountant", None) is not None
    ):  # it refuses rounds of unequal weights
        facts.append(Fact("divisor", "constant", where="its accountant refuses unequal weights"))
        facts.append(Fact("noise.relative_to", "clip", where=f"noise of z C on a sum over {clients} clients"))
        return _both(account, Found(NAME, tuple(facts), read=(name,)))
    where = f"the mean is weighted by {key}, and the noise is z C / {clients}"
    facts += [Fact("divisor", "weights", where=where), Fact("noise.relative_to", "mean", where=where)]
    if replies is not None:
        weights = [_weight(reply, key) for reply in items(replies, "replies")]
        if not weights or not sum(weights):
            raise UsageError("replies hold no weight above 0")
        share = max(weights) / math.fsum(weights)
        facts.append(Fact("sampling.max_weight", share, where=f"the largest {key} of {len(weights)} replies"))
    found = Found(NAME, tuple(facts), read=(name, f"weighted_by_key {key}", "accountant None"))
    return found if account is None else _both(account, found)


def _weight(reply: object, key: str) -> float:
    """The weight of one client: a number, a mapping that has it, or a message with one metric record."""
    if isinstance(reply, Mapping):
        return real(reply, key, "a reply")
    records = getattr(getattr(reply, "content", None), "metric_records", None)
    for record in records.values() if isinstance(records, Mapping) else ():
        if isinstance(record, Mapping) and key in record:
            return real(record, key, "a reply")
    return real({key: reply}, key, "a reply")


def _both(account: Found, strategy: Found) -> Found:
    """An accountant beside its strategy: what ran has noise of z times the clipping norm on the sum of updates."""
    shown = {fact.field for fact in strategy.facts}
    facts = [*(fact for fact in account.facts if fact.field not in shown or fact.field == "noise.multiplier")]
    ran: tuple[StepSpec, ...] = ()
    if any(fact.field == "noise.relative_to" and fact.value == "clip" for fact in strategy.facts):
        moved = ({**step, "noise_multiplier": step["sigma"]} for step in account.accounted)
        ran = tuple({key: step[key] for key in step if key not in ("sigma", "sensitivity")} for step in moved)
    return Found(
        NAME, (*facts, *strategy.facts), account.accounted, ran, account.notes, (*account.read, *strategy.read)
    )


def _local(data: Mapping[str, object]) -> Found:
    """A modifier of one client: its noise follows a formula that holds for eps below 1, and its own sensitivity."""
    norm, sensitivity, eps, delta = (real(data, name, "LocalDpMod") for name in LOCAL)
    if not norm or not eps or not 0 < delta < 1:
        raise UsageError(f"LocalDpMod has clipping norm {norm:g}, eps {eps:g} and delta {delta:g}; all are above 0")
    std = sensitivity * math.sqrt(2 * math.log(1.25 / delta)) / eps
    facts = (
        Fact("claim.eps", eps, where="epsilon"),
        Fact("claim.delta", delta, where="delta"),
        Fact("claim.by", "flower LocalDpMod"),
        Fact("unit", "client", where="LocalDpMod"),
        Fact("clip.norm", norm, where="clipping_norm"),
        Fact("clip.per", "client", where="LocalDpMod"),
        Fact("sampling.kind", "none", where="LocalDpMod"),
        Fact("steps", 1, where="the claim is about one round"),
    )
    notes = (
        "the claim is about the reports of one round: add the others as composition.other",
        "local privacy compares any two updates: declare adjacency replace-one, under which an update moves by 2 C",
    )
    accounted: tuple[StepSpec, ...] = ()
    if std:
        accounted = ({"mech": "gauss", "sigma": std, "sensitivity": sensitivity, "n": 1},)
        ran: tuple[StepSpec, ...] = ({"mech": "gauss", "noise_multiplier": std / norm, "n": 1},)
        return Found(NAME, facts, accounted, ran, notes, ("LocalDpMod",))
    silent = Fact("noise.multiplier", 0.0, where="sensitivity is 0")
    return Found(NAME, (*facts, silent), (), (), notes, ("LocalDpMod",))


def _result(result: object) -> Found:
    """The metrics of all rounds: an epsilon that does not grow was printed by an accountant that forgot the others."""
    rounds = mapping(getattr(result, "train_metrics_clientapp", None), "train_metrics_clientapp")
    figures = []
    for each in rounds.values():
        metrics = mapping(each, "the metrics of a round")
        figures += [real(metrics, key, "a round") for key in ("epsilon", "eps", "privacy_epsilon") if key in metrics][
            :1
        ]
    facts: list[Fact] = [Fact("claim.eps", max(figures), where="the largest epsilon of a round")] if figures else []
    if len(figures) > 1 and figures[-1] <= figures[0] * (1 + 1e-6):
        where = f"epsilon of {len(figures)} rounds does not grow: each round forgot the ones before"
        facts.append(Fact("composition.runs", len(figures), where=where))
    return Found(NAME, tuple(facts), read=(f"epsilon of {len(figures)} rounds",))
