"""Made-up batches that show how one record may influence another: constant, padded, repeated, incomplete records.

Networks mix records under conditions that ordinary random rows never meet: padding that ends at the longest record of
the batch, gaps that are filled with the mean of the batch, equal records that are treated once. Each function here
changes the values of a batch and keeps its shape, type and device.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

FAR = 1e3
"""The magnitude of the values of a record that is changed to be unlike all others."""
GAPS = 0.3
"""The share of a record's values that are missing in a batch with gaps."""


class Rows(NamedTuple):
    """Made-up examples [B, ...], with targets [B, ...] if there are some."""

    inputs: Tensor
    targets: Tensor | None

    def first(self, count: int) -> Rows:
        """Return the first ``count`` of them."""
        return Rows(self.inputs[:count], None if self.targets is None else self.targets[:count])

    def extended(self, more: Rows) -> Rows:
        """Return a batch of the size of ``more`` that begins with these examples."""
        count = len(self.inputs)
        targets = None
        if self.targets is not None and more.targets is not None:
            targets = torch.cat([self.targets, more.targets[count:]])
        return Rows(torch.cat([self.inputs, more.inputs[count:]]), targets)

    def beside(self, others: Tensor) -> Rows:
        """Return the examples, the first of them replaced by others, which all have the last target."""
        inputs, count = self.inputs.clone(), len(others)
        inputs[:count] = others
        targets = None if self.targets is None else self.targets.clone()
        if targets is not None:
            targets[:count] = targets[-1]
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
