"""Choose the fastest correct clipping method for a model by a trial on made-up examples, and keep it with the model."""

from __future__ import annotations

import functools
import math
import time
import types
import weakref
from collections.abc import Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from wpriv.errors import Unsupported, UsageError
from wpriv.training.clipping import model_settings, model_state
from wpriv.training.clipping.example_gradients import Loss, Summed, roughness, total
from wpriv.training.clipping.ghost import UNCLIPPED, ghost, loop, vmap
from wpriv.training.clipping.model_pass import Probed, SameDraws, Scores, repeated, sizes_of
from wpriv.training.clipping.probe_model import Rows, probe
from wpriv.training.clipping.record_trees import Records, Tree, leaves, named_leaves, numbers

# --- keys by which a choice is remembered, as long as neither the model nor the loss changes ---

HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
GLOBAL_HOOKS = tuple(getattr(nn.modules.module, f"_global{table}") for table in HOOKS)


def identity(function: object, depth: int = 4) -> Hashable:
    """Return the cache key of a loss: its code and the functions in it, the same for a loss that is defined again."""
    if function is None or isinstance(function, (type, types.BuiltinFunctionType)) or not depth:
        return function if depth else type(function)
    if isinstance(function, functools.partial):
        values = (*function.args, *function.keywords.values())
        return identity(function.func, depth - 1), _identities(values, depth), _settings(function.keywords)
    if isinstance(function, types.MethodType):
        return function.__func__.__code__, _reference(function.__self__)
    if isinstance(function, types.FunctionType):
        values = (*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values())
        cells = [cell.cell_contents for cell in function.__closure__ or () if is_filled(cell)]
        return function.__code__, _identities((*values, *cells), depth)
    if isinstance(function, nn.Module):
        return type(function), repr(function), _settings(vars(function))
    return _reference(function)


def _identities(items: Sequence[object], depth: int) -> Hashable:
    """Return the keys of functions and modules; the values of other variables are assumed not to matter."""
    modules = tuple(_reference(item) for item in items if isinstance(item, nn.Module))
    return modules, tuple(
        identity(item, depth - 1) for item in items if callable(item) and not isinstance(item, nn.Module)
    )


def _settings(values: Mapping[str, object]) -> Hashable:
    return tuple((key, repr(item)) for key, item in sorted(values.items()) if isinstance(item, (str, bool, int, float)))


def _reference(item: Hashable) -> Hashable:
    """Return a weak reference to an object, or its type where it has none."""
    try:
        reference = weakref.ref(item)
        hash(reference)
    except TypeError:
        return type(item)
    return reference


def structure(model: nn.Module) -> Hashable:
    """Return what the choice depends on: types, modes, forward functions and hooks of the modules, and parameters."""
    modules = tuple(_parts(module) for module in model.modules())
    everywhere = tuple(tuple(table) for table in GLOBAL_HOOKS)
    return (
        modules,
        everywhere,
        tuple(
            (parameter.requires_grad, parameter.dtype, parameter.device, tuple(parameter._backward_hooks or ()))
            for parameter in model.parameters()
        ),
    )


def _parts(module: nn.Module) -> Hashable:
    kind, forward = type(module), vars(module).get("forward")
    # the keys of hooks are numbers that are never used again
    hooks = tuple(tuple(vars(module)[table]) for table in HOOKS)
    return kind, module.training, kind.forward, None if forward is None else _reference(forward), hooks


def kind(records: Records | None) -> Hashable:
    if isinstance(records, Tree):
        return records.form
    return None if records is None else (records.dim(), records.dtype)


def is_filled(cell: types.CellType) -> bool:
    """Return whether a variable that a function captured has a value yet."""
    try:
        cell.cell_contents  # noqa: B018
    except ValueError:
        return False
    return True


# --- the choice, and the trial that it rests on ---

METHODS = {"ghost": ghost, "vmap": vmap, "loop": loop}
# sizes of a made-up batch: the first one is taken for which neither it nor one less is a dimension of the examples or a
# number that a layer has been given, such as its heads: ``SameDraws`` finds the dimension of records by its size
COUNTS = range(8, 44)
# the size of a medium made-up batch, and the most numbers of a large one
SIXTY, LARGEST = 60, 2**20
# relative differences allowed between two methods, in a sum of gradients and in a norm, which is rounded upwards
SUM_TOLERANCE, NORM_TOLERANCE = {torch.float32: 1e-4, torch.float64: 1e-8}, 1e-2
JITTER = 0.1
# how much faster another method than the first one must be; the longest step that is measured on many records, of more
# than these few
FASTER, SECONDS, FEW = 1.5, 0.5, 4
# parts of the names of inputs whose whole numbers are switches
FLAGS = ("mask", "type")
MADE_UP = (
    "No private record is passed before the first step. Made-up whole numbers are below the rows of the smallest "
    "embedding (without one, 0 or 1); where that fails, one number for each sequence is taken as its length. Let "
    "`forward` take such numbers, for example by clamp"
)
# trials with other random numbers, as long as dropout hides all gradients
ATTEMPTS = 8


@dataclass
class Choice:
    """The method that was chosen for a model as it is.

    Args:
        settings: of the model and the loss (``model_settings.settings``) when real records were last compared with
            records alone; None before that. counts: whether the model counts its calls.
        largest: the largest batch of which real records were compared. why: why faster methods cannot be used.
    """

    method: str
    counts: bool = False
    settings: model_settings.Settings | None = None
    largest: int = 0
    why: str = ""

    def due(self, model: nn.Module, loss: object, records: int, check: int | None = None) -> bool:
        """Return whether real records are to be compared now: on request, at first, after a change of a setting, and in
        a larger batch than before, by whose size a model may take another way."""
        if self.method != "ghost" or records < 2:
            return False  # the other methods pass each record through the model by itself
        before, self.settings = self.settings, model_settings.settings(model, loss)
        larger, self.largest = records > self.largest, max(records, self.largest)
        return check is not None or larger or self.settings != before


_choices: weakref.WeakKeyDictionary[nn.Module, dict[Hashable, Choice]] = weakref.WeakKeyDictionary()


def method_for(
    model: nn.Module,
    loss: Loss | None,
    inputs: Records,
    targets: Records | None,
    *,
    candidates: Sequence[str],
    scores: Scores | None = None,
    classes: int = 2,
    batch: int = 0,
    only_rules: bool = False,
) -> Choice:
    """Return the fastest candidate that gives each record's own gradient, after ``probe`` has refused models that mix.

    The trial uses made-up examples in the shape of the records, in the model's present mode, and restores the state of
    the model and of the global random generators. The choice is cached for the model, its modes, hooks and forward
    functions, and the argument types.

    Args:
        loss, scores: as in ``probe``.
        inputs, targets: their types and their shapes behind the first dimension are used; their numbers only where the
            model refuses made-up ones.
        candidates: ``ghost``, ``vmap``, ``loop`` in order of preference. classes: integer targets are below this.
        batch: how many records pass through the model together, if more than ``inputs``.
        only_rules: ``ghost`` needs a rule for each layer with parameters.
    Raises:
        Unsupported: records mix, something is kept from batch to batch, or no candidate is correct; the message names
            the place.
    """
    same = structure(model), kind(inputs), kind(targets), identity(loss), identity(scores), only_rules
    key, cache = (tuple(candidates), same), _choices.setdefault(model, {})
    if key not in cache:
        probed = Probed(model, loss, scores)
        count, *larger = _counts(model, inputs, max(batch, len(inputs)))
        # under autocast two orders of a sum differ by more than the tolerance
        with torch.autocast(inputs.device.type, enabled=False):
            draw = functools.partial(made_up, model, inputs, targets, classes=classes)
            fault: Exception | None = None
            for lengths in (False, True):
                try:
                    rows = draw(count=count, lengths=lengths)
                    more = [rows.extended(draw(count=size, lengths=lengths)) for size in larger]
                    cache[key] = _try_methods(probed, rows, more, candidates, only_rules)
                    break
                except (RuntimeError, ValueError, IndexError, KeyError) as error:
                    fault = fault or error
            else:
                # the model or the loss does not accept made-up examples
                if not len(inputs):
                    reason = str(fault).partition("\n")[0].rstrip(".")
                    raise UsageError(f"the network or the loss fails on made-up records: {reason}. {MADE_UP}") from None
                few = [*range(min(count, len(inputs)))] if len(inputs) > 1 else [0, 0]
                rows = Rows(inputs[few], None if targets is None else targets[few])
                choice = _try_methods(probed, rows, [], candidates, only_rules)
                if len(inputs) < 3:
                    return choice  # too few records to cache it
                cache[key] = choice
        # the method that was chosen may be asked for by its name
        cache.setdefault(((cache[key].method,), same), cache[key])
    return cache[key]


def why_slow(model: nn.Module) -> str:
    """Return why faster methods than the last one that was chosen for a model cannot be used, as far as they say it."""
    return next((choice.why for choice in reversed(_choices.get(model, {}).values())), "")


def _counts(model: nn.Module, inputs: Records, batch: int) -> list[int]:
    """Return the sizes of made-up batches: a small one, and up to the real one as far as memory allows."""
    dimensions = set(inputs.shape[1:]) | sizes_of(model)
    count = next((count for count in COUNTS if dimensions.isdisjoint((count, count - 1))), COUNTS[0])
    largest = min(batch, LARGEST // max(1, numbers(inputs)))
    wanted = (size for size in (SIXTY, largest) if count < size <= largest)
    return [count, *(next(size for size in range(size, 0, -1) if size not in dimensions) for size in {*wanted})]


def check_evaluation(model: nn.Module, inputs: Records) -> None:
    """Refuse a model that in evaluation mode mixes records or keeps them; private records are measured in this mode."""
    with model_state.kept(model), torch.autocast(inputs.device.type, enabled=False):
        probe(model.eval(), made_up(model, inputs, None, COUNTS[0]).inputs)


def made_up(
    model: nn.Module,
    inputs: Records,
    targets: Records | None,
    count: int,
    classes: int = 2,
    lengths: bool = False,
) -> Rows:
    """Return made-up examples shaped as others: uniform on [0, 1), words of every embedding, or classes.

    Args:
        lengths: whether whole numbers are lengths of inputs that have a further dimension: from 1 to its size.
    """
    generator = torch.Generator().manual_seed(0)
    words = [module.num_embeddings for module in model.modules() if isinstance(module, (nn.Embedding, nn.EmbeddingBag))]
    rows = _drawn(inputs, count, min(words, default=2), generator)
    if lengths and isinstance(rows, Tree):
        shapes = [leaf.shape for leaf in leaves(rows)]

        def length(leaf: Tensor) -> Tensor:
            longer = [shape[leaf.dim()] for shape in shapes if leaf.shape == shape[: leaf.dim()] != shape]
            if leaf.dtype != torch.int64 or not longer:
                return leaf
            most = max(1, min(*longer, *(size - 1 for size in words)) if words else min(longer))
            return torch.randint(1, most + 1, leaf.shape, generator=generator).to(leaf)

        rows = rows.map(length)
    return Rows(rows, None if targets is None else _drawn(targets, count, classes, generator))


def _try_methods(
    probed: Probed, rows: Rows, larger: Sequence[Rows], candidates: Sequence[str], only_rules: bool
) -> Choice:
    """Probe and compare at the model's weights and near them, since initial weights of zero may hide a difference."""
    model, (inputs, targets) = probed.model, rows
    with model_state.kept(model):
        probe(model, inputs, targets, loss=probed.loss, scores=probed.scores, thorough=False)
        with _jittered(model):
            counts = probe(model, inputs, targets, loss=probed.loss, scores=probed.scores, larger=larger)
    if counts:
        # a later call may take another way, by which methods that pass records one by one cannot mix them
        candidates = _one_by_one(candidates)
    goals = torch.zeros(len(inputs), device=inputs.device) if targets is None else targets
    trial = _Trial(probed, inputs, goals, only_rules)
    with model_state.kept(model), repeated(model), torch.enable_grad(), SameDraws(model, len(inputs)) as draws:
        correct = trial.correct(candidates)
        compared, trial.compared = trial.compared, False
        with _jittered(model):
            for _ in range(ATTEMPTS):
                draws.seed += 1000
                correct = trial.correct(correct)
                if trial.compared:
                    break
        if draws.unknown or not (compared or trial.compared):
            # gradients cannot be compared: methods that pass records one by one are correct by construction
            correct = [name for name in candidates if name != "ghost" and trial.runs(name)]
    if len(correct) > 1:
        with model_state.kept(model), repeated(model), torch.enable_grad():
            fastest = trial.fastest(correct, larger[0] if larger else rows)
        if fastest != correct[0]:
            with model_state.kept(model), repeated(model), torch.enable_grad(), SameDraws(model, len(inputs)):
                correct = trial.correct((fastest,)) or correct
    if correct:
        reasons = dict.fromkeys(str(refusal).rpartition("; ")[0] for refusal in trial.refusals)
        return Choice(correct[0], counts, why="; ".join(reasons))
    if len(candidates) == 1 and trial.refusals:
        raise trial.refusals[-1]
    if len(candidates) == 1:
        fault, change = f"the clipping method {candidates[0]!r} does not give", "use the clipping method 'auto'"
    else:
        fault, change = "no method gives", "use layers by calling them, each in one place"
    raise Unsupported(
        f"{fault} each record's own gradient of this model: a weight is used outside the layer that holds it, or a "
        f"hook changes gradients; {change}"
    )


def _one_by_one(candidates: Sequence[str]) -> list[str]:
    """Return the methods that pass each record through the model by itself."""
    others = [name for name in candidates if name != "ghost"]
    if not others:
        raise Unsupported(
            "the model or the loss counts its calls, and could take another way at a later one, which mixes records. "
            "Use the clipping method 'auto', which passes each record by itself there, or leave the count out"
        )
    return others


class _Trial:
    """Compares methods with a loop over made-up records.

    ``compared``: whether some gradients were finite and not 0, as all are where dropout hides the whole output.
    """

    def __init__(self, probed: Probed, inputs: Records, targets: Records, only_rules: bool):
        self.probed, self.inputs, self.targets = probed, inputs, targets
        self.methods = METHODS | {"ghost": functools.partial(ghost, only_rules=only_rules)}
        self.compared = False
        self.refusals: list[Unsupported] = []

    def correct(self, candidates: Sequence[str]) -> list[str]:
        """Return the candidates from the first that agrees with the loop; all if gradients say nothing."""
        wanted, alone = self.summed("loop"), self.summed("loop", slice(1, 2))
        if not all(bool(part.isfinite().all()) for part in wanted.parts) or not bool(total(wanted.squares).any()):
            return list(candidates)
        self.compared = True
        second = torch.zeros(len(self.inputs), device=self.inputs.device)
        second[1] = 1.0
        for place, name in enumerate(candidates):
            if name == "loop":
                return list(candidates[place:])
            try:
                whole, one = self.summed(name), self.summed(name, weights=second)
            except Unsupported as error:
                self.refusals.append(error)
                continue
            near = _agree(whole.parts, wanted.parts) and _agree(one.parts, alone.parts)
            if near and _agree_norms(total(whole.squares).sqrt(), total(wanted.squares).sqrt()):
                return list(candidates[place:])
        return []

    def runs(self, name: str) -> bool:
        """Return whether a method runs on the model without raising ``Unsupported``."""
        try:
            self.summed(name)
        except Unsupported as error:
            self.refusals.append(error)
            return False
        return True

    def fastest(self, names: Sequence[str], rows: Rows) -> str:
        """Return the method whose step on made-up records is the shortest, or the first if none is clearly shorter.

        ``vmap`` is not measured where ``ghost`` is clearly faster than the loop: it does the same work and more. Steps
        that take long are measured on few records, and so is the loop.
        """
        zeros = torch.zeros(len(rows.inputs), device=rows.inputs.device)
        goals = zeros if rows.targets is None else rows.targets
        seconds: dict[str, float] = {}
        for name in sorted(names, key=("ghost", "loop", "vmap").index):
            if name == "vmap" and FASTER * seconds.get("ghost", math.inf) < seconds.get("loop", 0.0):
                continue
            each = self._seconds(name, self.inputs[:FEW], self.targets[:FEW]) / FEW
            seconds[name] = each * len(rows.inputs)
            if name != "loop" and seconds[name] < SECONDS:
                seconds[name] = self._seconds(name, rows.inputs, goals)
        best = min(seconds, key=seconds.__getitem__)
        return best if FASTER * seconds[best] < seconds[names[0]] else names[0]

    def _seconds(self, name: str, inputs: Records, targets: Records) -> float:
        """Return the time of a step, the shortest of a few; infinite if the method does not run."""
        # other programs on the machine count in no processor time
        clock = time.process_time if inputs.device.type == "cpu" else time.perf_counter
        times: list[float] = []
        while len(times) < 3 and sum(times) < SECONDS / 10:
            start = clock()
            try:
                sums = self._sums(name, inputs, targets, None)
            except Unsupported:
                return math.inf
            float(sums.parts[0].sum())  # waits for the device
            times.append(clock() - start)
        return min(times)

    def summed(self, name: str, part: slice = slice(None), weights: Tensor | None = None) -> Summed:
        """Return the unclipped sum of the records' gradients by a method."""
        return self._sums(name, self.inputs[part], self.targets[part], weights)

    def _sums(self, name: str, inputs: Records, targets: Records, weights: Tensor | None) -> Summed:
        return self.methods[name](self.probed.model, self.probed.combined, inputs, targets, UNCLIPPED, weights)


def _agree(sums: Sequence[Tensor], wanted: Sequence[Tensor]) -> bool:
    """Return whether two lists agree up to precision and order of summation; what cancels is nothing but rounding."""
    largest = max(float(part.norm()) for part in wanted)
    tolerance = SUM_TOLERANCE[wanted[0].dtype] + 4 * roughness(wanted[0].dtype)
    rounding = 64 * torch.finfo(wanted[0].dtype).eps * largest
    return all(
        float((one - other).norm()) <= tolerance * (float(other.norm()) + 1e-3 * largest) + rounding
        for one, other in zip(sums, wanted, strict=True)
    )


def _agree_norms(norms: Tensor, wanted: Tensor) -> bool:
    tolerance = NORM_TOLERANCE + 16 * roughness(wanted.dtype)
    return bool(((norms - wanted).abs() <= tolerance * (wanted + 1e-3 * wanted.max())).all())


@contextmanager
def _jittered(model: nn.Module) -> Iterator[None]:
    """Move the trainable weights a little within the block."""
    generator = torch.Generator().manual_seed(1)
    weights = [(parameter, parameter.data) for parameter in model.parameters() if parameter.requires_grad]
    for parameter, data in weights:
        step = torch.randn(data.shape, generator=generator, dtype=torch.float64).to(data)
        parameter.data = data + JITTER * (data.abs().mean() + JITTER) * step
    try:
        yield
    finally:
        for parameter, data in weights:
            parameter.data = data


def _drawn(like: Records, count: int, below: int, generator: torch.Generator) -> Records:
    if isinstance(like, Tree):
        # masks and types of words are 0 or 1, whatever the words are
        flags = [any(word in name for word in FLAGS) for name, _ in named_leaves(like)]
        following = iter(flags)
        return like.map(lambda leaf: _drawn_tensor(leaf, count, 2 if next(following) else below, generator))
    return _drawn_tensor(like, count, below, generator)


def _drawn_tensor(like: Tensor, count: int, below: int, generator: torch.Generator) -> Tensor:
    shape = (count, *like.shape[1:])
    if like.dtype == torch.bool:
        return torch.randint(2, shape, generator=generator).bool().to(like.device)
    if like.is_floating_point() or like.is_complex():
        return torch.rand(shape, generator=generator, dtype=torch.float64).to(like)
    return torch.randint(max(below, 1), shape, generator=generator).to(like)
