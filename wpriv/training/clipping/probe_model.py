"""Test on a few examples whether a model, in its present mode, lets one record influence another.

The influence of a record on a clipped sum is bounded only if its output, loss and gradient depend on that record alone
and the model keeps nothing of a batch: neither for the next batch nor in what is saved beside the noisy weights.
"""

from __future__ import annotations

import contextlib
import functools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn

from wpriv.errors import Unsupported, UsageError
from wpriv.training.clipping import model_settings, model_state
from wpriv.training.clipping.example_gradients import Loss
from wpriv.training.clipping.model_pass import (
    Draws,
    Pass,
    Probed,
    SameDraws,
    Scores,
    forward_pass,
    generator_states,
    repeated,
    run_pass,
    sizes_of,
    trained_parameters,
)
from wpriv.training.clipping.model_settings import Snapshot
from wpriv.training.clipping.model_state import Shared, is_rounding, named
from wpriv.training.clipping.record_trees import Records, joined, mapped, variants

# --- made-up batches that show how one record may influence another ---
#
# Networks mix records under conditions that ordinary random rows never meet: padding that ends at the longest record of
# the batch, gaps that are filled with the mean of the batch, equal records that are treated once. Each function here
# changes the values of a batch and keeps its shape, type and device.

# the magnitude of the values of a record that is changed to be unlike all others
FAR = 1e3
# the share of a record's values that are missing in a batch with gaps
GAPS = 0.3


class Rows(NamedTuple):
    """Made-up examples [B, ...], with targets [B, ...] if there are some."""

    inputs: Records
    targets: Records | None

    def first(self, count: int) -> Rows:
        """Return the first ``count`` of them."""
        return Rows(self.inputs[:count], None if self.targets is None else self.targets[:count])

    def extended(self, more: Rows) -> Rows:
        """Return a batch of the size of ``more`` that begins with these examples."""
        count = len(self.inputs)
        targets = None
        if self.targets is not None and more.targets is not None:
            targets = joined([self.targets, more.targets[count:]])
        return Rows(joined([self.inputs, more.inputs[count:]]), targets)

    def beside(self, others: Records) -> Rows:
        """Return the examples, the first of them replaced by others, which all have the last target."""
        count = len(others)
        inputs = joined([others, self.inputs[count:]])
        targets = None if self.targets is None else joined([self.targets[[-1] * count], self.targets[count:]])
        return Rows(inputs, targets)


def kinds(rows: Tensor) -> list[Tensor]:
    """Return batches of several kinds in the place of ordinary ones [B, ...], the most telling ones first."""
    (zeros, *constants), padded, gaps = _constants(rows), list(_padded(rows)), list(_with_gaps(rows))
    repeated = rows[-1:].expand_as(rows).clone()
    return [rows, *padded[:1], *gaps, zeros, repeated, *padded[1:], *constants]


def companions(ordinary: Tensor, watched: Tensor, count: int) -> list[Tensor]:
    """Return batches [count, ...] of other records, for an ordinary batch and one whose last records are watched.

    The first has one record of each kind: the last watched one, an ordinary one, constant, far and short ones. In the
    second the last watched record and an ordinary one take turns, for models that do not accept the others.
    """
    zeros, *constants = _constants(ordinary)
    batches = [watched, ordinary, zeros, *_far(ordinary)[:1], *_padded(ordinary)]
    batches = [*batches[:5], constants[-1], *batches[5:], *constants[:-1], *_far(ordinary)[1:]]
    one_of_each = torch.cat([batch[-1:] for batch in batches])
    places = torch.arange(count)
    return [one_of_each[places % len(one_of_each)], one_of_each[places % 2]]


def _constants(rows: Tensor) -> list[Tensor]:
    """Return batches in which all values are equal: 0, half of the largest, the largest; and -1 for quantities."""
    if not rows.is_floating_point():
        largest = int(rows.max())
        return [torch.full_like(rows, value) for value in (0, largest // 2, largest)]
    return [torch.full_like(rows, value) for value in (0.0, 0.5, 1.0, -1.0)]


def _far(rows: Tensor) -> list[Tensor]:
    """Return batches of values that are larger than all others, where records are quantities."""
    return [value * (1 + rows) for value in (FAR, -FAR)] if rows.is_floating_point() else []


def _markers(rows: Tensor) -> tuple[float, ...]:
    """Return what padding and missing values are written as: 0 and -1, or for whole numbers 0 and the largest."""
    return (0.0, -1.0) if rows.is_floating_point() else (0, int(rows.max()))


def _padded(rows: Tensor) -> Iterator[Tensor]:
    """Yield batches whose records have values at their beginning, or at their end, and padding in the other places.

    Positions are the first dimension of a record or the last (of images the last). No record is longer than half of
    them, so that a full one in the batch changes the greatest length.
    """
    places = {rows.dim() - 1} if rows.dim() == 4 else {1, rows.dim() - 1} - {0}
    for place in sorted(places):
        length = rows.shape[place] if place < rows.dim() else 0
        if length < 2:
            continue
        positions = torch.arange(length, device=rows.device).view(-1, *[1] * (rows.dim() - 1 - place))
        kept = 1 + torch.arange(len(rows), device=rows.device) % (length // 2)
        kept = kept.view(-1, *[1] * (rows.dim() - 1))
        for marker in _markers(rows):
            yield rows.masked_fill(positions >= kept, marker)
            yield rows.masked_fill(positions < length - kept, marker)


def _with_gaps(rows: Tensor) -> Iterator[Tensor]:
    """Yield batches in which values are missing here and there, in every record."""
    missing = (torch.rand(rows.shape, generator=torch.Generator().manual_seed(2)) < GAPS).to(rows.device)
    for marker in _markers(rows):
        yield rows.masked_fill(missing, marker)


# what a model raises that does not accept made-up numbers
REJECTED = (RuntimeError, ValueError, IndexError, KeyError, AssertionError, ArithmeticError)
# the number of records that are watched where all others are replaced
WATCHED = 2
# the number of seeds with which a model that draws random numbers is tried, and of kinds of unusual records: as many as
# take ``WORK`` multiplications, and never less than ``FEW``. No made-up batch takes more.
SEEDS, FEW, WORK = 64, 4, 2**28
PACKED = (
    "Its sequences are packed, which mixes nothing by itself: unpack them (pad_packed_sequence), and let each row of "
    "the output depend on one record alone"
)
BY_ITSELF = "Make each record's output depend on that record alone, for example with nn.GroupNorm"


def probe(
    model: nn.Module,
    inputs: Records,
    targets: Records | None = None,
    *,
    loss: Loss | None = None,
    scores: Scores | None = None,
    larger: Sequence[Rows] = (),
    thorough: bool = True,
) -> bool:
    """Refuse a model or a loss in which one record of a batch influences another, or the state that the model keeps.

    The test compares the outputs of all modules, the losses and the gradients of some records, which other records
    must not change. These are replaced, also by constant, padded, incomplete, repeated and far ones; they are left out,
    down to one record alone, and more are added; another batch passes before. A model that draws random numbers is
    tried with several seeds. Dropout is allowed: the passes that are compared begin from the same random numbers. The
    state of the model and of the global generators is restored. Mixing that made-up examples do not show is not
    detected.

    Args:
        inputs: [B, ...] at least two examples as the model takes them, preferably made up.
        targets, loss: [B, ...] and (outputs, targets) -> losses [B]; without them only the outputs are tested.
        scores: outputs -> [B, d], further numbers of each record.
        larger: larger batches, which begin with the examples of ``inputs``. thorough: try unusual records and seeds.
    Returns:
        Whether the model counts its calls, so that a later one could take another way.
    Raises:
        Unsupported: records mix, or state is kept; the message names the module, the buffer or the attribute.
        UsageError: fewer than two examples, or a loss or scores of a wrong shape.
    """
    if len(inputs) < 2:
        raise UsageError("a probe needs at least two examples")
    probed, rows = Probed(model, loss, scores), Rows(inputs, targets)
    with model_state.kept(model), repeated(model) as draws, torch.enable_grad():
        counts = _refuse_state(probed, *rows)
        _refuse_mixing(probed, *rows)
        passes = WORK // _work(probed, rows)
        larger = [each.first(passes * len(inputs)) for each in larger if passes > 1]
        _refuse_resizing(probed, rows, larger)
        if thorough:
            unusual = [Rows(batch, targets) for batch in variants(kinds, inputs)[: max(passes // 2, FEW)]]
            _refuse_companions(probed, [*unusual, *larger], inputs)
            _refuse_seeds(probed, rows, draws, max(min(passes // 2, SEEDS), FEW))
    return counts


def _refuse_state(probed: Probed, inputs: Records, targets: Records | None) -> bool:
    """Refuse state that changes in a pass, and outputs that depend on the batch before.

    Returns:
        Whether a number or a word among the attributes changes in each pass, in the same way for every batch.
    """
    model = probed.model
    others = _changed(inputs, targets)[0]
    with model_state.kept(model):
        before = model_state.buffers(model)
        first = run_pass(probed, inputs, targets)
        _refuse_change(model, model_state.changed(before, model_state.buffers(model)))
        attributes, numbers = model_state.attributes(model), model_settings.settings(model, deep=False)
        functions = probed.loss, probed.scores
        snapshots = [model_settings.snapshot(model, *functions)]
        run_pass(probed, *others)
        _refuse_change(model, model_state.changed(attributes, model_state.attributes(model)))
        snapshots.append(model_settings.snapshot(model, *functions))
        again = run_pass(probed, inputs, targets)
        snapshots.append(model_settings.snapshot(model, *functions))
    with model_state.kept(model):
        run_pass(probed, *others)
        _refuse_change(model, model_state.changed(attributes, model_state.attributes(model)))
        for name, value in model_settings.settings(model, deep=False).items():
            if numbers.get(name) != value:
                _refuse_change(model, name)
        after_others = run_pass(probed, inputs, targets)
    for second in (again, after_others):
        place = _first_difference(first, second, model_state.apart)
        if place is None and first.readout is not None and second.readout is not None:
            place = "the loss" if model_state.apart(first.readout, second.readout) else None
        if place is not None:
            raise Unsupported(
                f"{place} keeps state between calls: its output for a batch depends on the batch before. Let it depend "
                f"on the weights and the present batch alone"
            )
    return _only_counts(model, snapshots)


def _only_counts(model: nn.Module, snapshots: Sequence[Snapshot]) -> bool:
    """Refuse a model that keeps data of records in functions, objects or classes: another state than a count of calls.

    Returns:
        Whether it counts its calls, or draws from a generator or an iterator of the program.
    """
    first, second, third = snapshots
    steps, others = first.steps_to(second), second.steps_to(third)
    unequal = next((name for name in steps if steps[name] != others.get(name)), None)
    _refuse_change(model, first.data_in(second) or unequal)
    return first.settings != second.settings or second.settings != third.settings


def _refuse_change(model: nn.Module, name: str | None) -> None:
    if name is None:
        return
    of_model = " of the model" * (name not in model_settings.FUNCTIONS)
    fault = f"{name}{of_model} changes in a forward pass in {mode(model)} mode"
    if not name.startswith(("the buffer", "the parameter", "the extra state")):
        raise Unsupported(f"{fault}, and so keeps data of the records. Compute it in each pass, and do not store it")
    raise Unsupported(f"{fault}, and is saved with the model without noise. Remove it, or keep it constant")


def _refuse_mixing(probed: Probed, inputs: Records, targets: Records | None) -> None:
    """Refuse outputs, losses and gradients of records that change with another record."""
    size = len(inputs)
    weights = torch.linspace(1.0, 2.0, size, device=inputs.device)
    weights[0] = 0.0
    with model_state.kept(probed.model):
        before = run_pass(probed, inputs, targets, weights)
    for place, (other, goals) in enumerate(_changed(inputs, targets)):
        try:
            with model_state.kept(probed.model):
                after = run_pass(probed, other, goals, weights)
        except REJECTED:
            if place == 0:
                raise
            continue  # the model does not accept such numbers
        _refuse_difference(probed, before, after, Shared((size, size), 1, size).differ, "changing one record changes")
        for (name, _), one, two in zip(trained_parameters(probed.model), before.gradient, after.gradient, strict=True):
            if bool(one.isfinite().all() & two.isfinite().all()) and not model_state.near(
                one, two, 4 * model_state.exact(one)
            ):
                raise Unsupported(
                    f"the gradient of {name!r} for a record depends on the other records of its batch, though the "
                    f"outputs do not. Check hooks and custom backward functions"
                )


def _refuse_resizing(probed: Probed, rows: Rows, larger: Sequence[Rows]) -> None:
    """Refuse outputs and losses of records that change when other records are left out or added."""
    size, dimensions = len(rows.inputs), sizes_of(probed.model) | set(rows.inputs.shape[1:])
    fewer = [rows.first(count) for count in sorted({1, 2, 3, size - 1}) if count < size]
    with model_state.kept(probed.model), SameDraws(probed.model, size) as draws:
        full = forward_pass(probed, *rows)
    for other in (*fewer, *larger):
        count = len(other.inputs)
        with model_state.kept(probed.model), SameDraws(probed.model, count, dimensions=dimensions) as others:
            after = forward_pass(probed, *other)
        if draws.unknown or others.unknown:
            continue
        shared = Shared((size, count), 0, min(size, count))
        what = "leaving one record out changes" if count < size else f"adding records, up to {count}, changes"
        _refuse_difference(probed, full, after, shared.differ, what)


def _refuse_companions(probed: Probed, batches: Sequence[Rows], ordinary: Records) -> None:
    """Refuse outputs and losses of the last records of a batch that change when all others are replaced."""
    for rows in batches:
        for others in _companions(rows, ordinary):
            with contextlib.suppress(*REJECTED):
                _refuse_influence(probed, rows, others)
                break


def _companions(rows: Rows, ordinary: Records) -> list[Records]:
    count = len(rows.inputs) - WATCHED
    return variants(functools.partial(companions, count=count), ordinary, rows.inputs)


def _refuse_influence(probed: Probed, rows: Rows, others: Records) -> None:
    """Refuse outputs and losses of the last records that differ where others take the place of the first."""
    size, other = len(rows.inputs), rows.beside(others)
    shared = Shared((size, size), size - WATCHED, size)
    for traced in (False, True):  # the outputs of the modules, which name the place, only where the results differ
        with model_state.kept(probed.model):
            before = forward_pass(probed, *rows, traced=traced)
        with model_state.kept(probed.model):
            after = forward_pass(probed, *other, traced=traced)
        if (
            before.readout is not None
            and after.readout is not None
            and not shared.differ(before.readout, after.readout)
        ):
            return
    _refuse_difference(probed, before, after, shared.differ, "changing other records changes")


def _refuse_seeds(probed: Probed, rows: Rows, draws: Draws, seeds: int) -> None:
    """Refuse outputs and losses of records that change with another record for some random numbers of the model."""
    draws.begin()
    states = generator_states()
    with model_state.kept(probed.model):
        forward_pass(probed, *rows)
    if generator_states() == states:
        return
    others = mapped(_companions(rows, rows.inputs)[1], lambda leaf: leaf.flip(0))
    for seed in range(seeds):
        draws.seed = seed
        with contextlib.suppress(*REJECTED):
            _refuse_influence(probed, rows, others)


def _work(probed: Probed, rows: Rows) -> int:
    """Return about how many multiplications a forward pass takes, by the outputs of the layers; at least 1."""
    with model_state.kept(probed.model):
        trace = forward_pass(probed, *rows).trace
    total = 1
    for _, module, outputs in trace:
        if outputs and outputs[0].dim() and not isinstance(module, nn.Embedding):
            weights = list(module.parameters(recurse=False))
            width = weights[0].shape[0] if isinstance(module, nn.modules.conv._ConvNd) else outputs[0].shape[-1]
            total += sum(weight.numel() for weight in weights) * outputs[0].numel() // max(width, 1)
    return total


def _refuse_difference(
    probed: Probed, before: Pass, after: Pass, differs: Callable[[Tensor, Tensor], bool], what: str
) -> None:
    place = _first_difference(before, after, differs)
    if place is not None:
        fault = f"{place} mixes the records of a batch in {mode(probed.model)} mode"
        raise Unsupported(f"{fault}: {what} its output for the others. {PACKED if before.packed else BY_ITSELF}")
    if before.readout is not None and after.readout is not None and differs(before.readout, after.readout):
        name = "the loss" if probed.scores is None else "the loss or the function of the scores"
        fault = f"{name} mixes the records of a batch: {what} it for the others"
        raise Unsupported(
            f"{fault}. Let it depend for each record on its own output and target alone, not on the size of the batch. "
            f"What a record is compared with (positives, negatives) belongs into the record, or comes from public "
            f"records or an earlier noisy step"
        )


def _first_difference(before: Pass, after: Pass, differs: Callable[[Tensor, Tensor], bool]) -> str | None:
    """Return the first module whose output differs, as 'name' (Kind); of packed sequences the model alone may.

    Inner layers may get the records in another order, or some of them: then an output that is not theirs decides.
    """
    first: str | None = None
    for (name, module, mine), (other, _, theirs) in zip(before.trace, after.trace, strict=False):
        if name != other:
            return None  # another order of calls: the modules cannot be compared
        if name and (before.packed or after.packed):
            continue
        for one, two in zip(mine, theirs, strict=False):
            if (is_rounding(one) and is_rounding(two)) or not differs(one, two):
                continue
            first = first or named(name, module)
            if not name or differs is model_state.apart or not _have_same_rows(one, two):
                return first
    return None


def _have_same_rows(one: Tensor, two: Tensor) -> bool:
    """Return whether two outputs have the same rows in other places, as layers do that get them by their contents.

    Of as many rows less than half may differ, since one record was changed; otherwise one output has all of the other.
    """
    first, second = sorted((rows.reshape(len(rows), -1).double() for rows in (one, two)), key=len)
    if first.shape[1] != second.shape[1]:
        return False
    apart = model_state.exact(one) if len(first) == len(second) else model_state.RESIZED.get(one.dtype, 0.05)
    nearest = torch.cdist(first, second, p=math.inf).amin(dim=1)
    others = int((nearest > 4 * apart * second.abs().amax()).sum())
    return 2 * others < len(first) if len(first) == len(second) else not others


def mode(model: nn.Module) -> str:
    """Return the mode of a model in words."""
    return "training" if model.training else "evaluation"


def _changed(inputs: Records, targets: Records | None) -> list[tuple[Records, Records | None]]:
    """Return the batch with its first record replaced: by the last one, and by others unlike any of them."""
    goals = None if targets is None else joined([targets[-1:], targets[1:]])
    return [(batch, goals) for batch in variants(_with_first_replaced, inputs)]


def _with_first_replaced(rows: Tensor) -> list[Tensor]:
    like = rows.clone()
    like[0] = rows[-1]
    batches = [like]
    for far in (FAR, -FAR) if rows.is_floating_point() else ():
        other = rows.clone()
        other[0] = far * (1 + rows[-1])
        batches.append(other)
    return batches


# --- models that mix the examples of a batch by the types of their modules; ``probe`` tests all others ---

PRECISIONS = (torch.float32, torch.float64)


def check_modules(model: nn.Module) -> None:
    """Refuse modules that mix examples, by type and present mode, and parameters that cannot be clipped.

    Normalisation by fixed statistics (``eval()`` with running statistics) mixes nothing and is allowed. Modules of
    other types are tested by ``probe``, which tries the model on examples.
    """
    require_shapes(model)
    for name, module in model.named_modules():
        if isinstance(module, torch.jit.ScriptModule):
            where = repr(name or "the model")
            raise Unsupported(f"{where} is compiled by torch.jit and cannot be tested; give the original module")
        advice = instead(module)
        if advice:
            raise Unsupported(
                f"{named(name, module)} mixes the examples of a batch, so that the "
                f"influence of an example is not bounded; {advice}"
            )
    trainable = [(name, p) for name, p in model.named_parameters() if p.requires_grad]
    if not trainable:
        raise UsageError("the model has no trainable parameters: requires_grad is false for all of them")
    first, like = trainable[0]
    for name, parameter in trainable:
        if parameter.dtype not in PRECISIONS:
            raise Unsupported(
                f"parameters must be float32 or float64 for clipping to hold its bound; {name!r} is {parameter.dtype}"
            )
        if parameter.dtype != like.dtype or parameter.device != like.device:
            places = f"{first!r} is {like.dtype} on {like.device}, {name!r} {parameter.dtype} on {parameter.device}"
            raise Unsupported(f"trainable parameters must share one precision and one device; {places}")


def require_shapes(model: nn.Module) -> None:
    """Refuse a model with lazy layers that have no shape yet."""
    for name, parameter in model.named_parameters():
        if isinstance(parameter, nn.parameter.UninitializedParameter):
            raise UsageError(
                f"{name!r} has no shape yet: pass made-up examples through a model with lazy layers before training it"
            )


def instead(module: nn.Module) -> str:
    """Return what to do about a module that mixes examples by its type; empty for others."""
    if isinstance(module, nn.modules.batchnorm._BatchNorm) and (module.training or module.running_mean is None):
        if module.running_mean is not None and not any(p.requires_grad for p in module.parameters()):
            return "its weights are not trained: call its eval(), after which its running statistics are constants"
        return "use nn.GroupNorm, which normalises each example by itself: wpriv.fix(model).model is a copy with it"
    if isinstance(module, nn.modules.instancenorm._InstanceNorm) and module.training and module.track_running_stats:
        return "leave track_running_stats off"
    if isinstance(module, (nn.Embedding, nn.EmbeddingBag)):
        if module.scale_grad_by_freq:
            return "leave scale_grad_by_freq off, which counts words over the batch"
        if module.max_norm is not None:
            return "leave max_norm out, which changes the weight by the words of the batch"
    return ""
