"""Opacus: its PrivacyEngine with loader, optimizer and model; accountants; checkpoints and histories.

An engine keeps what was accounted for. The sampler, the clipping and the divisor are in the loader and the optimizer.
"""

from __future__ import annotations

import inspect
import math
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from wpriv.checks.premises import Fact, Found, StepSpec, Value
from wpriv.checks.readers import _checkpoints, _documents
from wpriv.checks.readers._documents import items, mapping
from wpriv.checks.readers._gaussian_steps import entry, gauss
from wpriv.errors import UsageError

STATE = "privacy_accountant_state_dict"
# kinds of steps up to which the library's own figure is asked for: prv needs .2 s for each
MAX_KINDS, MAX_ENTRIES = 20, 100_000
# names that a wrapper keeps the optimizer under that it wraps, and how many wrappers there may be
WRAPPED, MAX_WRAPPERS = ("optimizer", "_optimizer"), 4
# hooks of an optimizer that may call each other
MAX_HOOKS = 32
CHANGES = (
    ("sampling.kind", "make_private(poisson_sampling=True)"),
    ("sampling.workers", "make_private(poisson_sampling=True), or a DistributedSampler"),
    ("sampling.max_weight", "make_private(poisson_sampling=True)"),
    ("model.trained_by", "step the optimizer that make_private returned"),
    ("steps", "step the optimizer that make_private returned"),
    ("clip.adaptive", "Opacus 1.6 or later, whose history holds what was paid"),
    ("divisor", "declare records_public=yes, if the number of records is public"),
)


def recognises(x: object) -> bool:
    """Tell whether x is an engine, an accountant or an optimizer of Opacus, or a file with the state of one."""
    if isinstance(x, Path):
        if x.suffix.lower() == ".json":
            return _is_history(x)
        return _checkpoints.is_checkpoint(x, STATE)
    return _is_engine(x) or _is_accountant(x) or _is_private(x)


def _of_opacus(x: object, package: str) -> bool:
    """Tell whether the class of an object, or one that it is derived from, stands in a package of Opacus."""
    return any(cls.__module__.startswith(package) for cls in type(x).__mro__)


def _is_engine(x: object) -> bool:
    return _of_opacus(x, "opacus.privacy_engine")


def _is_accountant(x: object) -> bool:
    return _of_opacus(x, "opacus.accountants")


def _is_private(x: object) -> bool:
    return _of_opacus(x, "opacus.optimizers")


def _is_history(path: Path) -> bool:
    """Tell whether a JSON file holds a history: a list of [noise multiplier, rate, steps], alone or under its key."""
    if not _documents.head(path).startswith(("[", "{")):
        return False
    try:
        data = _documents.document(path)
    except UsageError:
        return _documents.head(path).startswith("[[")
    data = data.get("history") if isinstance(data, dict) else data
    return isinstance(data, list) and all(isinstance(row, list) and len(row) == 3 for row in data)


@dataclass
class _Reading:
    """What was found so far."""

    facts: list[Fact] = field(default_factory=list)
    read: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    contradictions: list[str] = field(default_factory=list)

    def fact(self, name: str, value: Value | None, where: str) -> None:
        """Add a fact, unless there is no value."""
        if value is not None:
            self.facts.append(Fact(name, value, where=where))


def read(x: object, further: Mapping[str, object]) -> Found:
    """Read an engine with the objects beside it, or a file with the state of its accountant."""
    reading, ran = _Reading(), tuple[StepSpec, ...]()
    if isinstance(x, Path):
        history, mechanism = _of_file(x)
        steps = _accounted(history, mechanism, reading, f"history of {x.name}")
        shown = ", ".join(f"({z:g}, {q:g}, {n})" for z, q, n in map(entry, history[:3])) or "(empty)"
        reading.read = [
            f"history {shown}" + ", ..." * (len(history) > 3),
            *([f"mechanism {mechanism}"] if mechanism else []),
        ]
        name = "opacus"
    else:
        objects = dict(further)
        if _is_private(x):
            objects.setdefault("optimizer", x)
        accountant = _accountant_of(x, objects.get("optimizer"))
        name = _name()
        steps = _live(accountant, further.get("delta"), reading, name)
        if getattr(x, "secure_mode", False) is True:
            reading.fact("noise.seed", "os", "secure_mode of the engine")
        reading.fact("records", _length(getattr(x, "dataset", None)), "the data set of the engine")
        _loader(objects.get("loader"), objects.get("optimizer"), reading)
        _optimizer(objects.get("optimizer"), accountant, steps, reading)
        _model(objects.get("model"), objects.get("optimizer"), reading)
        ran = _accumulated(steps, _hook(_unwrapped(objects.get("optimizer")))[1], reading)
    return Found(
        name,
        _without_repeats(reading.facts),
        steps,
        ran,
        notes=tuple(reading.notes),
        read=tuple(reading.read),
        contradictions=tuple(reading.contradictions),
        changes=CHANGES,
    )


def _name() -> str:
    version = getattr(sys.modules.get("opacus"), "__version__", "")
    return f"opacus {version}".strip()


def _length(data: object) -> int | None:
    try:
        return len(data) or None  # type: ignore[arg-type]
    except (TypeError, NotImplementedError):
        return None


def _accumulated(steps: Sequence[StepSpec], counted: float | None, reading: _Reading) -> tuple[StepSpec, ...]:
    """Steps that sum the gradients of several batches: with the loader's rate times the number of batches of each.

    A history has the counted rate times that number. It is taken from the hook's rate, or else from the loader's where
    the history has about a multiple of that. Of equal steps the fact of the rate is changed, and no steps are returned.
    """
    fact = next((each for each in reading.facts if each.field == "sampling.rate"), None)
    if fact is None or not isinstance(fact.value, float) or not steps:
        return ()
    loader, rates = fact.value, [float(str(step.get("rate", 1.0))) for step in steps]
    batches = [max(round(rate / (counted or loader)), 1) for rate in rates]
    if max(batches) == 1:
        return ()
    reading.notes.append(f"a step sums the gradients of up to {max(batches)} batches")
    sizes = [each for each in reading.facts if each.field == "sampling.batch"]
    reading.facts = [each for each in reading.facts if each.field != "sampling.batch"]
    for each in sizes:
        reading.fact("sampling.batch", int(float(str(each.value))) * max(batches), f"{each.where}, accumulated")
    ran = [min(loader * count, 1.0) for count in batches]
    if len(set(ran)) == 1:
        index = reading.facts.index(fact)
        reading.facts[index] = Fact("sampling.rate", ran[0], where=f"{fact.where}, {batches[0]} batches a step")
        return ()
    kinds = {str(each.value) for each in reading.facts if each.field == "sampling.kind"}
    reading.facts = [each for each in reading.facts if each is not fact]
    drawn = {"sampling": kinds.pop() if len(kinds) == 1 else "poisson"}
    if drawn["sampling"] not in ("poisson", "none"):
        # each kind of step is counted in whole passes of its own: all are taken to be as large as the largest
        reading.fact("sampling.rate", max(ran), f"{fact.where}, up to {max(batches)} batches a step")
        return ()
    return tuple({**step, "rate": rate, **drawn} for step, rate in zip(steps, ran, strict=True))


def _without_repeats(facts: Sequence[Fact]) -> tuple[Fact, ...]:
    """Facts, the first of each field where all agree; a number of records from several places is one fact."""
    kept: dict[tuple[str, str], Fact] = {}
    for fact in facts:
        kept.setdefault((fact.field, str(fact.value)), fact)
    return tuple(kept.values())


# What was accounted for: histories of files and of live accountants.


def _of_file(path: Path) -> tuple[Sequence[object], str]:
    """The history and the mechanism of a checkpoint, or of a JSON file."""
    if path.suffix.lower() == ".json":
        data = _documents.document(path)
        data = data if isinstance(data, dict) else {"history": data}
    else:
        whole = mapping(_checkpoints.plain(path), str(path))
        data = mapping(whole.get(STATE), f"{STATE} of {path}")
    history = items(data.get("history"), f"the history of {path}")
    if len(history) > MAX_ENTRIES:
        raise UsageError(f"{path}: a history has up to {MAX_ENTRIES:,} entries; found {len(history):,}")
    mechanism = data.get("mechanism")
    return history, mechanism if isinstance(mechanism, str) else ""


def _accounted(history: Sequence[object], mechanism: str, reading: _Reading, where: str) -> tuple[StepSpec, ...]:
    """The steps of a history, with the facts that it shows."""
    rows = [entry(row, f"entry {index} of the {where}") for index, row in enumerate(history, 1)]
    rows = [row for row in rows if row[2]]
    total = sum(n for _, _, n in rows)
    reading.fact("steps_accounted", total, f"the {where} has {total} steps")
    reading.fact("steps_source", "history", where)
    reading.fact("noise.relative_to", "clip", where)
    for name, index in (("noise.multiplier", 0), ("sampling.rate_accounted", 1)):
        values = {row[index] for row in rows}
        if len(values) == 1:
            reading.fact(name, values.pop(), where)
    if any(z == 0 for z, _, _ in rows):
        reading.facts = [fact for fact in reading.facts if fact.field != "noise.multiplier"]
        reading.fact("noise.multiplier", 0.0, f"the {where} has steps without noise")
    if mechanism:
        reading.fact("claim.by", f"{_name()} {mechanism}", where)
        reading.fact("claim.kind", "estimate" if mechanism == "gdp" else "bound", f"mechanism {mechanism}")
    return tuple(gauss(*row) for row in rows if row[0])


def _accountant_of(x: object, optimizer: object) -> object:
    """The accountant of an engine, or that of an optimizer's hook where there is no engine."""
    if _is_engine(x):
        return getattr(x, "accountant", None)
    return x if _is_accountant(x) else _hook(_unwrapped(optimizer))[0]


def _live(accountant: object, delta: object, reading: _Reading, name: str) -> tuple[StepSpec, ...]:
    """The steps of a live accountant, and the figure that it prints for a delta."""
    history = getattr(accountant, "history", None)
    if accountant is None or not isinstance(history, (list, tuple)):
        reading.notes.append("no accountant is known: give the PrivacyEngine")
        return ()
    named = getattr(type(accountant), "mechanism", None)
    mechanism = str(named()) if callable(named) else ""
    steps = _accounted(list(history), mechanism, reading, "history of the accountant")
    reading.read.append("history")
    if isinstance(delta, (int, float)) and 0 < delta < 1 and 0 < len(steps) <= MAX_KINDS:
        eps = _printed(accountant, list(history), float(delta))
        reading.fact("claim.eps", eps, f"the {mechanism} accountant of {name}, asked on a copy")
    return steps


def _printed(accountant: object, history: list[object], delta: float) -> float | None:
    """What an accountant of this class prints for this history; the accountant itself is not asked."""
    try:
        copy = type(accountant)()
        copy.history = history  # type: ignore[attr-defined]
        eps = float(copy.get_epsilon(delta=delta))  # type: ignore[attr-defined]
    except (ArithmeticError, IndexError, RuntimeError, TypeError, ValueError):
        return None
    return eps if math.isfinite(eps) and eps >= 0 else None


# What the optimizer shows: noise, clipping, the divisor, and whether it is the one that steps privately.


def _unwrapped(optimizer: object) -> object:
    """The private optimizer inside of wrappers, or the outermost one where none is private."""
    inner = optimizer
    for _ in range(MAX_WRAPPERS):
        if inner is None or _is_private(inner):
            return inner
        inner = next((getattr(inner, name) for name in WRAPPED if hasattr(inner, name)), None)
    return optimizer


def _hook(optimizer: object) -> tuple[object, float | None]:
    """The accountant and the rate that the hook of an optimizer counts with; None where no such hook is known."""
    hooks: list[object] = [inspect.unwrap(getattr(optimizer, "step_hook", None))]  # type: ignore[arg-type]
    for hook in hooks:
        code = getattr(hook, "__code__", None)
        cells = [_content(cell) for cell in getattr(hook, "__closure__", None) or ()]
        accountant = next((each for each in cells if _is_accountant(each)), None)
        if accountant is not None:
            rate = dict(zip(getattr(code, "co_freevars", ()), cells, strict=False)).get("sample_rate")
            return accountant, float(rate) if isinstance(rate, (int, float)) else None
        # a ledger, or a hook of the user's own, may call another one
        names = getattr(hook, "__globals__", None) or {}
        called = [*cells, *(names.get(each) for each in getattr(code, "co_names", ()))]
        hooks += [each for each in called if inspect.isfunction(each)]
        del hooks[MAX_HOOKS:]
    return None, None


def _content(cell: object) -> object:
    try:
        return cell.cell_contents  # type: ignore[attr-defined]
    except ValueError:  # an empty cell
        return None


def _optimizer(given: object, accountant: object, steps: Sequence[StepSpec], reading: _Reading) -> None:
    if given is None:
        return
    optimizer = _unwrapped(given)
    name = type(optimizer).__name__ if optimizer is not None else type(given).__name__
    if not _is_private(optimizer):
        reading.fact("model.trained_by", type(given).__name__, f"the optimizer is a {type(given).__name__}")
        return
    reading.fact("model.trained_by", name, f"the optimizer is a {name}")
    _divisor(optimizer, reading)
    hook = getattr(optimizer, "step_hook", None)
    counted, rate = _hook(optimizer)
    if hook is None:
        reading.contradictions += ["the optimizer has no step hook, so that its steps are not counted"] if steps else []
    elif counted is None and inspect.isfunction(hook) and accountant is not None:
        reading.contradictions.append("the step hook of the optimizer counts in no accountant: it has replaced another")
    elif counted is not None and accountant is not None and counted is not accountant:
        reading.contradictions.append("the optimizer counts its steps in another accountant than that of the engine")
    z = _float(getattr(optimizer, "noise_multiplier", None))
    kinds = {step["noise_multiplier"] for step in steps}
    if rate is not None and len({step.get("rate", 1.0) for step in steps}) <= 1 and not steps:
        reading.fact("sampling.rate_accounted", rate, "step_hook of the optimizer")
    norm = getattr(optimizer, "max_grad_norms", None)
    norms = tuple(map(float, norm)) if isinstance(norm, (list, tuple)) and norm else None
    whole = _float(getattr(optimizer, "max_grad_norm", None))
    layered = norms is not None or "PerLayer" in name
    reading.fact("clip.norm", norms or ((whole,) if whole else None), "max_grad_norm of the optimizer")
    reading.fact("clip.scope", "per layer" if layered else "global", f"the optimizer is a {name}")
    reading.fact("clip.per", "record", f"the optimizer is a {name}")
    if whole:
        reading.read.append(f"max_grad_norm {whole:g}")
    std = _float(getattr(optimizer, "unclipped_num_std", None))
    if counted is not None and counted is accountant and std is None and len(kinds) == 1 and kinds != {z}:
        reading.notes.append(f"noise_multiplier of the optimizer is {z:.6g} now; the history has that of each step")
    elif len(kinds) <= 1 and z is not None:
        _multiplier(optimizer, z, std, reading)
    _counted(optimizer, sum(int(str(step["n"])) for step in steps), reading)
    generator = getattr(optimizer, "generator", None)
    if getattr(optimizer, "secure_mode", False) is True:
        reading.fact("noise.seed", "os", "secure_mode of the optimizer")
    elif generator is not None and callable(getattr(generator, "initial_seed", None)):
        seed = generator.initial_seed()
        reading.notes.append(f"the noise is drawn from a generator with seed {seed}: it must stay secret (noise.seed)")


def _counted(optimizer: object, steps: int, reading: _Reading) -> None:
    """Note where the optimizer itself has counted more steps, as Adam does, than the history has."""
    states = getattr(getattr(optimizer, "original_optimizer", None), "state", None)
    states = states.values() if isinstance(states, Mapping) else ()
    own = [_float(state.get("step")) for state in states if isinstance(state, Mapping)]
    most = max((each for each in own if each is not None), default=0.0)
    if steps and most > steps:
        reading.contradictions.append(
            f"the optimizer has taken {most:.0f} steps, and the history has {steps}: those before it are not counted"
        )


def _multiplier(optimizer: object, z: float, std: float | None, reading: _Reading) -> None:
    """The noise multiplier of the gradients; of adaptive clipping, beside that of the count of clipped records."""
    where = "noise_multiplier of the optimizer"
    if std is None:
        reading.fact("noise.multiplier", z, where)
        return
    reading.facts = [fact for fact in reading.facts if fact.field != "noise.multiplier"]
    paid = _pays_for_count(optimizer)
    if paid and z**-2 > (2 * std) ** -2:
        z = (z**-2 - (2 * std) ** -2) ** -0.5
    reading.fact("noise.multiplier", z, f"{where}, of the gradients")
    reading.fact("clip.adaptive", "noisy", f"the optimizer is a {type(optimizer).__name__}")
    reading.fact("clip.count_std", std, "unclipped_num_std of the optimizer")


def _pays_for_count(optimizer: object) -> bool:
    """Tell whether noise_multiplier is that of gradients and count together, as from Opacus 1.6 on."""
    noisy = next(
        (cls.__dict__.get("add_noise") for cls in type(optimizer).__mro__ if "add_noise" in cls.__dict__), None
    )
    names = getattr(getattr(noisy, "__code__", None), "co_names", ())
    if names:
        return "unclipped_num_std" in names and "noise_multiplier" in names and "max_grad_norm" in names
    version = str(getattr(sys.modules.get("opacus"), "__version__", "1.6.0")).split(".")
    return [int(part) for part in version[:2] if part.isdecimal()] >= [1, 6]


def _divisor(optimizer: object, reading: _Reading) -> None:
    batch = _float(getattr(optimizer, "expected_batch_size", None))
    reduction = getattr(optimizer, "loss_reduction", "mean")
    if reduction == "mean" and batch is not None:
        reading.fact("divisor", "expected", f"expected_batch_size of the optimizer is {batch:g}")
        reading.read.append(f"expected_batch_size {batch:g}")
    elif reduction == "sum":
        reading.fact("divisor", "constant", "loss_reduction of the optimizer is sum")
    params = getattr(optimizer, "params", None)
    sizes = (
        [each.numel() for each in params if callable(getattr(each, "numel", None))] if isinstance(params, list) else []
    )
    reading.fact("model.parameters", sum(sizes) or None, "parameters of the optimizer")


def _float(value: object) -> float | None:
    """A number, also one of torch or numpy; None for anything else."""
    if value is None or isinstance(value, (bool, str)):
        return None
    try:
        return float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return None


# What the loader shows: how the records of a batch were drawn.


def _loader(loader: object, optimizer: object, reading: _Reading) -> None:
    if loader is None:
        return
    sampler, path = getattr(loader, "batch_sampler", None), "loader.batch_sampler"
    for _ in range(MAX_WRAPPERS):
        if type(sampler).__name__ != "BatchSplittingSampler":
            break
        sampler, path = getattr(sampler, "sampler", None), f"{path}.sampler"
    reading.fact("records", _length(getattr(loader, "dataset", None)), "the data set of the loader")
    name = type(sampler).__name__
    if name in ("UniformWithReplacementSampler", "DistributedUniformWithReplacementSampler"):
        where = f"{path} is a {name}"
        reading.read.append(name)
        reading.fact("sampling.kind", "poisson", where)
        reading.fact("sampling.rate", _float(getattr(sampler, "sample_rate", None)), f"sample_rate of {path}")
        return
    inner = getattr(sampler, "sampler", None)
    size, batches = _float(getattr(sampler, "batch_size", None)), _length(sampler)
    if sampler is None or inner is None or not size or not batches:
        reading.notes.append(
            f"{path} is {'none' if sampler is None else f'a {name}'}, which is not known: declare sampling.kind"
        )
        return
    reading.fact("sampling.batch", int(size), f"batch_size of {path}")
    _drawn(inner, f"{path}.sampler", batches, reading)
    world = _float(getattr(_unwrapped(optimizer), "world_size", None))
    if world and world > 1 and "Distributed" not in type(inner).__name__:
        reading.fact(
            "sampling.workers",
            int(world),
            f"world_size of the optimizer is {world:g}, and {path}.sampler is no DistributedSampler",
        )


def _drawn(sampler: object, path: str, batches: int, reading: _Reading) -> None:
    """How a sampler of torch draws the records that are cut into batches."""
    name = type(sampler).__name__
    replaced = getattr(sampler, "replacement", None)
    article = f"{path} is a {name}"
    words = article if replaced is None else f"{article} {'with' if replaced else 'without'} replacement"
    reading.read.append(name)
    if name == "WeightedRandomSampler":
        reading.fact("sampling.kind", "weighted", words)
        reading.fact("sampling.rate", 1 / batches, f"{path}: one of {batches} batches a pass")
        if replaced:
            reading.fact("sampling.max_weight", _largest_share(getattr(sampler, "weights", None)), f"weights of {path}")
        else:
            reading.notes.append(f"{words}: no bound from below is known")
    elif name == "RandomSampler" and replaced:
        reading.fact("sampling.kind", "weighted", words)
        records = _length(getattr(sampler, "data_source", None))
        reading.fact("sampling.rate", 1 / batches, f"{path}: one of {batches} batches a pass")
        reading.fact("sampling.max_weight", None if records is None else 1 / records, f"{words}: equal weights")
    elif name in ("RandomSampler", "SubsetRandomSampler", "DistributedSampler", "SequentialSampler"):
        ordered = name == "SequentialSampler" or (
            name == "DistributedSampler" and not getattr(sampler, "shuffle", True)
        )
        reading.fact("sampling.kind", "order" if ordered else "shuffle", words)
        reading.fact("sampling.rate", 1 / batches, f"{path}: one of {batches} batches a pass")
    else:
        reading.notes.append(f"{article}, which is not known: declare sampling.kind")


def _largest_share(weights: object) -> float | None:
    """The largest weight over the sum of all; None where they are no numbers."""
    try:
        values = [float(each) for each in weights]  # type: ignore[attr-defined]
    except (TypeError, ValueError):
        return None
    total = math.fsum(values)
    return max(values) / total if values and total > 0 and math.isfinite(total) else None


# What the model shows: layers that mix records, and whether it is the one that the optimizer updates.


def _model(model: object, optimizer: object, reading: _Reading) -> None:
    if model is None:
        return
    mixing = tuple(_mixing(model))
    reading.fact("model.mixes_records", mixing or None, "the model in training mode")
    params, of_model = getattr(_unwrapped(optimizer), "params", None), getattr(model, "parameters", None)
    if isinstance(params, list) and params and callable(of_model):
        updated = {id(each) for each in params}
        trained = [each for each in of_model() if getattr(each, "requires_grad", False)]
        if trained and not any(id(each) in updated for each in trained):
            reading.contradictions.append("the model that was given is not the one that the private optimizer updates")


def _mixing(model: object) -> Iterator[str]:
    """Names of layers whose output for a record depends on the others of its batch."""
    modules = getattr(model, "named_modules", None)
    for name, layer in modules() if callable(modules) else ():
        kind = type(layer).__name__
        if ("BatchNorm" in kind or kind == "SyncBatchNorm") and getattr(layer, "training", False):
            yield f"{name or 'the model'} ({kind})"
