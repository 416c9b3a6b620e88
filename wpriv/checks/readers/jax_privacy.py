"""Plans, configurations, batch selection and Keras configurations of jax_privacy; 2.0.0 and the names of later ones."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from pathlib import Path

from wpriv.checks.premises import Fact, Found, StepSpec
from wpriv.checks.readers import _documents, dp_accounting
from wpriv.checks.readers._documents import count, items, mapping, real
from wpriv.checks.readers._gaussian_steps import gauss, refutes
from wpriv.errors import Unsupported, UsageError

NAME = "jax_privacy"
STRATEGIES = {
    "CyclicPoissonSampling": (
        *("sampling_prob", "iterations", "truncated_batch_size", "cycle_length", "partition_type"),
    ),
    "BallsInBinsSampling": ("iterations", "cycle_length"),
    "RandomAllocationSampling": ("iterations", "total_participations", "cycle_length"),
    "FixedBatchSampling": ("batch_size", "iterations", "replace"),
    "BMinSepSampling": ("sampling_prob", "iterations", "min_sep", "warm_start", "truncated_batch_size"),
    "UserSelectionStrategy": ("base_strategy", "examples_per_user_per_batch", "shuffle_per_user"),
}
_OF_MATRIX = ("iterations", "noise_multiplier", "l2_clip_norm", "truncated_batch_size", "num_examples", "delta")
CONFIGS = {
    "BandMFExecutionPlanConfig": ("strategy", "sampling_prob", "partition_type", "epsilon", "noise_seed", *_OF_MATRIX),
    "BandMFConfig": ("strategy", "expected_participations", *_OF_MATRIX),
}
KERAS = (
    *("epsilon", "delta", "clipping_norm", "batch_size", "gradient_accumulation_steps", "train_steps", "train_size"),
    *("poisson_sampling_in_fit", "noise_multiplier", "seed"),
)
PLAN = ("dp_event", "batch_selection_strategy", "neighboring_relation")
TABLE = {**STRATEGIES, **CONFIGS, **dp_accounting.EVENTS, "DPKerasConfig": KERAS, "DPExecutionPlan": PLAN}
OWN = (*STRATEGIES, *CONFIGS, "DPKerasConfig", "DPExecutionPlan")

# keywords of ``check`` that this reader takes besides the objects of all
FURTHER = ("event",)


def recognises(x: object) -> bool:
    """Tell whether x is an object of jax_privacy, a Keras model that it made private, or a file of one."""
    if isinstance(x, Path):
        return _documents.type_of(x) in OWN
    return type(x).__name__ in OWN or type(getattr(x, "_dp_params", None)).__name__ == "DPKerasConfig"


def read(x: object, further: Mapping[str, object]) -> Found:
    """Read a plan, a configuration, a strategy with ``event``, or a Keras configuration with ``optimizer``."""
    if isinstance(x, Path):
        data = _documents.object_of(x, NAME)
    else:
        model = getattr(x, "_dp_params", None)
        further = {**({} if model is None else {"optimizer": getattr(x, "optimizer", None)}), **further}
        data = _documents.plain_data(x if model is None else model, TABLE)
    data = mapping(data, NAME)
    kind = str(data.get("type"))
    if kind == "DPKerasConfig":
        return _keras(data, further.get("optimizer"))
    if kind in CONFIGS:
        relation = getattr(getattr(x, "accountant", None), "_neighboring_relation", None)
        return _config(data, str(getattr(relation, "name", "")))
    if kind == "DPExecutionPlan":
        found = _plan(mapping(data.get("batch_selection_strategy"), "batch_selection_strategy"), data.get("dp_event"))
        relation = dp_accounting.RELATIONS.get(str(data.get("neighboring_relation")))
        return (
            found if relation is None else _with(found, Fact("adjacency", relation, where="plan.neighboring_relation"))
        )
    return _plan(data, _documents.plain_data(further.get("event"), TABLE))


def _with(found: Found, *facts: Fact) -> Found:
    return Found(
        found.name,
        (*found.facts, *facts),
        found.accounted,
        found.ran,
        found.notes,
        found.read,
        (*found.contradictions, *_equal_split(found, facts)),
    )


def _equal_split(found: Found, facts: tuple[Fact, ...]) -> Iterator[str]:
    """Groups of equal size depend on the number of records, which neighbours that add one do not share."""
    adds = any(fact.field == "adjacency" and fact.value == "add-remove" for fact in facts)
    if adds and "partition EQUAL_SPLIT" in found.read:
        yield "the relation is add-remove, and partition_type EQUAL_SPLIT is for zero-out and replace-one alone"


def _plan(strategy: Mapping[str, object], event: object) -> Found:
    """The sampler and the event side by side: what runs is the event's noise on the sampler's batches."""
    accounted = () if event is None else dp_accounting.steps_of(event)
    facts = [fact for fact in dp_accounting.facts_of(accounted) if fact.field != "sampling.kind"]
    more, ran, read = _strategy(strategy, {k: v for k, v in accounted[0].items() if k in NOISE} if accounted else None)
    known = {fact.field for fact in more}
    facts = [fact for fact in facts if fact.field not in known]
    found = Found(NAME, (*facts, *more), accounted, ran, read=("dp_event", "batch_selection_strategy", *read))
    return dp_accounting.with_noise(found)


# the keys of a step that say what is released, not on which records
NOISE = ("mech", "sigma", "scale", "sensitivity")


def _strategy(
    data: Mapping[str, object], noise: Mapping[str, object] | None
) -> tuple[list[Fact], tuple[StepSpec, ...], tuple[str, ...]]:
    """The premises of a batch selection strategy, the steps that run with a noise, and what was read."""
    name = str(data.get("type"))
    if name not in STRATEGIES:
        raise UsageError(
            f"no batch selection strategy of jax_privacy is called {name[:60]!r}; known: {', '.join(STRATEGIES)}"
        )
    if name == "UserSelectionStrategy":
        facts, ran, read = _strategy(mapping(data.get("base_strategy"), f"base_strategy of {name}"), noise)
        return [*facts, Fact("unit", "person", where=f"{name} draws users")], ran, (*read, name)
    steps, where = count(data, "iterations", name), f"batch_selection_strategy is a {name}"
    facts = [Fact("steps", steps, where=f"{name}.iterations"), Fact("steps_source", "planned", where=where)]
    if name == "CyclicPoissonSampling":
        return _poisson(data, steps, noise, facts, where)
    if name in ("BallsInBinsSampling", "RandomAllocationSampling"):
        return _allocated(name, data, steps, noise, facts, where)
    if name == "BMinSepSampling":
        raise Unsupported("BMinSepSampling of jax_privacy: no pair of draws with a least separation is proven here")
    batch = count(data, "batch_size", name)
    drawn = Fact("sampling.kind", "weighted" if data.get("replace") else "fixed", where=where)
    return [*facts, drawn, Fact("sampling.batch", batch, where=where)], (), (name,)


def _poisson(
    data: Mapping[str, object], steps: int, noise: Mapping[str, object] | None, facts: list[Fact], where: str
) -> tuple[list[Fact], tuple[StepSpec, ...], tuple[str, ...]]:
    """Poisson sampling of all records, or of the part whose turn it is in a cycle.

    Of a cycle of b steps a record takes part in every b-th step alone: ceil(T / b) releases are about it.
    """
    name = "CyclicPoissonSampling"
    rate = real(data, "sampling_prob", name)
    cycle = count(data, "cycle_length", name) if data.get("cycle_length") is not None else 1
    most = data.get("truncated_batch_size")
    rounds = -(-steps // max(cycle, 1))
    facts = [Fact("steps", rounds, where=f"{name}.iterations {steps}, in cycles of {max(cycle, 1)}"), *facts[1:]]
    facts += [Fact("sampling.kind", "poisson", where=where), Fact("sampling.rate", rate, where=f"{name}.sampling_prob")]
    if most is not None:
        facts.append(Fact("sampling.truncated", count(data, "truncated_batch_size", name), where=where))
    split = str(data.get("partition_type", "")).rpartition(".")[2] == "EQUAL_SPLIT" and cycle > 1
    read = (name, *(("partition EQUAL_SPLIT",) if split else ()))
    ran: tuple[StepSpec, ...] = ()
    if noise is not None and most is None and 0 < rate <= 1 and rounds:
        ran = ({**noise, **({"sampling": "poisson", "rate": rate} if rate < 1 else {}), "n": rounds},)
    return facts, ran, read


def _allocated(
    name: str,
    data: Mapping[str, object],
    steps: int,
    noise: Mapping[str, object] | None,
    facts: list[Fact],
    where: str,
) -> tuple[list[Fact], tuple[StepSpec, ...], tuple[str, ...]]:
    """Each record in one random step of a cycle, the same one in all cycles.

    The mean of a step's releases over the E cycles is sufficient, so that they are one cycle of noise sigma / sqrt(E).
    """
    cycle, cycles = steps, 1
    if name == "BallsInBinsSampling":
        cycle = count(data, "cycle_length", name)
        cycles = -(-steps // cycle) if cycle else 1
    elif count(data, "total_participations", name) != 1 or data.get("cycle_length") not in (None, 1):
        raise Unsupported("RandomAllocationSampling of several participations or cycles: no pair is proven here")
    if cycle < 1:
        raise UsageError(f"cycle_length of {name} must be at least 1; found {cycle}")
    facts += [Fact("sampling.kind", "allocation", where=where), Fact("sampling.rate", 1 / cycle, where=where)]
    ran: tuple[StepSpec, ...] = ()
    sigma = None if noise is None else noise.get("sigma")
    if noise is not None and isinstance(sigma, (int, float)) and cycle > 1:
        drawn = {"sampling": "allocation", "rate": 1 / cycle, "n": cycle}
        ran = ({**noise, "sigma": sigma / math.sqrt(cycles), **drawn},)
    return facts, ran, (name,)


def _config(data: Mapping[str, object], relation: str) -> Found:
    """A configuration of banded matrix factorization, from its fields alone: making its plan may take minutes."""
    name, iterations = str(data.get("type")), count(data, "iterations", str(data.get("type")))
    bands = len(items(data["strategy"], "strategy") if isinstance(data.get("strategy"), list) else _array(data))
    if not bands:
        raise UsageError(f"strategy of {name} has no coefficient")
    if name == "BandMFConfig":
        rate = real(data, "expected_participations", name) * bands / max(iterations, 1)
        split = data.get("num_examples") is not None
        relation = "REPLACE_SPECIAL" if split else "ADD_OR_REMOVE_ONE"
    else:
        rate, split = real(data, "sampling_prob", name), "EQUAL_SPLIT" in str(data.get("partition_type", ""))
    part = "EQUAL_SPLIT" if split else "INDEPENDENT"
    drawn = {"type": "CyclicPoissonSampling", "sampling_prob": rate, "iterations": iterations, "cycle_length": bands}
    drawn |= {"truncated_batch_size": data.get("truncated_batch_size"), "partition_type": part}
    event = None
    if data.get("noise_multiplier") is not None:
        z = real(data, "noise_multiplier", name)
        gauss: dict[str, object] = {"type": "GaussianDpEvent", "noise_multiplier": z}
        sampled: dict[str, object] = {"type": "PoissonSampledDpEvent", "sampling_probability": rate, "event": gauss}
        if data.get("truncated_batch_size") is not None:
            size = count(data, "num_examples", name) // bands
            sampled = {"type": "TruncatedSubsampledGaussianDpEvent", "dataset_size": size, "noise_multiplier": z}
            sampled |= {"sampling_probability": rate, "truncated_batch_size": data["truncated_batch_size"]}
        event = {"type": "SelfComposedDpEvent", "event": sampled, "count": -(-iterations // bands)}
    facts = [Fact("clip.norm", data["l2_clip_norm"], where="l2_clip_norm")] if data.get("l2_clip_norm") else []  # type: ignore[arg-type]
    facts += [Fact("divisor", "constant", where="normalize_by"), Fact("clip.per", "record", where="clipped_grad")]
    if data.get("epsilon") is not None and data.get("delta") is not None:
        facts += [Fact("claim.eps", real(data, "epsilon", name)), Fact("claim.delta", real(data, "delta", name))]
    if "noise_seed" in data and data["noise_seed"] is None:
        facts.append(Fact("noise.seed", "os", where="noise_seed is None"))
    if relation in dp_accounting.RELATIONS:
        facts.append(Fact("adjacency", dp_accounting.RELATIONS[relation], where=f"the relation of {name}"))
    return _with(_plan(drawn, event), *facts)


def _array(data: Mapping[str, object]) -> list[object]:
    """The coefficients of a strategy as a list; an array of another library has a length and no more is read."""
    strategy = data.get("strategy")
    length = getattr(strategy, "shape", (None,))
    if not isinstance(length, tuple) or len(length) != 1 or not isinstance(length[0], int):
        raise UsageError("the strategy of a configuration must be a list of coefficients")
    return [None] * length[0]


def _keras(data: Mapping[str, object], optimizer: object) -> Found:
    """A Keras configuration: all that is planned, and the updates that an optimizer counted."""
    name = "DPKerasConfig"
    batch, parts = count(data, "batch_size", name), count(data, "gradient_accumulation_steps", name)
    size, planned = count(data, "train_size", name), count(data, "train_steps", name)
    eps, delta = real(data, "epsilon", name), real(data, "delta", name)
    if not 0 < batch <= size or not parts:
        raise UsageError(f"{name} has a batch of {batch} of {size} records, {parts} to an update; all are at least 1")
    given, counted = data.get("noise_multiplier") is not None, _iterations(optimizer)
    z, updates = (real(data, "noise_multiplier", name) if given else 0.0), planned if counted is None else counted
    # with a noise multiplier of the user, eps is checked at the rate of one of the batches of an update
    small, rate = batch / size, min(batch * parts / size, 1.0)
    words = f"batch_size {batch} x gradient_accumulation_steps {parts} / train_size {size}"
    accounted = gauss(z, small if given else rate, planned)
    facts = [
        Fact("claim.eps", eps, where="epsilon"),
        Fact("claim.delta", delta, where="delta"),
        Fact("claim.by", "jax_privacy Keras, pld"),
        Fact("clip.norm", real(data, "clipping_norm", name), where="clipping_norm"),
        Fact("clip.per", "record", where="clipped_grad"),
        Fact("divisor", "constant", where="the batch_size of the configuration"),
        Fact("records", size, where="train_size"),
        Fact("sampling.rate_accounted", small if given else rate, where="batch_size / train_size" if given else words),
        Fact("steps_accounted", planned, where="train_steps"),
        Fact("steps", updates, where=_counted(planned, counted)),
        Fact("steps_source", "planned" if counted is None else "counter"),
    ]
    notes, left_out = [], ""
    if data.get("poisson_sampling_in_fit") is True:
        facts.append(Fact("sampling.kind", "poisson", where="poisson_sampling_in_fit is True"))
        if parts > 1:
            each = f"fit draws each of the {parts} batches of an update by itself"
            notes.append(f"{each}: a record can be in one update up to {parts} times, which its rate alone leaves out")
            runs = ((gauss(z, rate, updates), 1), (gauss(z, small, updates), parts))
            if not all(refutes(run, group, eps, delta, accounted) for run, group in runs):
                facts.append(Fact("sampling.workers", parts, where=each))
                rate, words = small, "batch_size / train_size"
            else:
                left_out = "a record that is several times in one update"
    else:
        where = "poisson_sampling_in_fit is False: fit takes batches of one size in the order of the data"
        facts.append(Fact("sampling.kind", "order", where=where))
    facts.append(Fact("sampling.rate", rate, where=words))
    if data.get("seed") is None:
        facts.append(Fact("noise.seed", "os", where="seed is None"))
    else:
        notes.append("the configuration has a seed: whoever knows it can subtract the noise")
    if not given:
        notes.append("the noise multiplier is calibrated in fit; give model.get_noise_multiplier() as noise.multiplier")
        return Found(NAME, tuple(facts), notes=tuple(notes), read=(name,))
    facts.append(Fact("noise.multiplier", z, where="noise_multiplier"))
    return Found(NAME, tuple(facts), (accounted,) if z else (), (), tuple(notes), (name,), left_out=left_out)


def _iterations(optimizer: object) -> int | None:
    """The updates that an optimizer of Keras counted, which it divides by the batches of an update itself."""
    iterations = getattr(optimizer, "iterations", None)
    if iterations is None:
        return None
    value = getattr(iterations, "value", iterations)
    return count({"iterations": value() if callable(value) else value}, "iterations", "the optimizer")


def _counted(planned: int, counted: int | None) -> str:
    if counted is None:
        return "train_steps, as planned"
    return f"optimizer.iterations is {counted}, where train_steps is {planned}"
