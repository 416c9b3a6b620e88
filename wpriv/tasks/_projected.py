"""The step of private sliced distances: what is released of a batch, and how the generator moves against what was released."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import avg_pool2d, one_hot

from wpriv.engine.job import ReleaseGate
from wpriv.engine.release import Bounded
from wpriv.errors import UsageError
from wpriv.models._generator import Generator
from wpriv.tasks._generation import even
from wpriv.tasks._swd_generate_options import FEATURE_SEED, FEATURE_WIDTHS, SENSITIVITY, Options
from wpriv.transport import line


class Rows:
    """From images to rows without a negative number, of a norm of at most 1; each row hangs on its own image (and label) alone."""

    def __init__(self, options: Options, shape: Sequence[int], device: torch.device):
        self.options = options
        self.network = random_conv(shape[0]).to(device) if options.features == "random-conv" else None
        found = self._compared(torch.zeros(1, *shape, device=device)).shape[1]
        if found != options.projected or (options.pool > 1 and (shape[1] % options.pool or shape[2] % options.pool)):
            raise UsageError(
                f"images {list(shape)} have {found} numbers to be compared by, where {options.projected} are accounted"
            )

    def __call__(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Images [N, C, H, W] clipped to the bound and divided by it, [N, projected], and which of them were clipped [N]."""
        compared = self._compared(x)
        norms = compared.norm(dim=1, keepdim=True)
        # a hair above the norm, so that no row is longer than 1 in floating point either
        slack = 1 + 64 * torch.finfo(norms.dtype).eps
        return compared / (norms * slack).clamp(min=self.options.bound), norms[:, 0] * slack > self.options.bound

    def labelled(self, rows: Tensor, labels: Tensor) -> Tensor:
        """The rows with their label behind them, where that is how classes are learnt; else as they are."""
        if self.options.labels != "appended":
            return rows
        share = self.options.share
        return torch.cat(
            [rows * math.sqrt(1 - share**2), share * one_hot(labels, self.options.classes).to(rows.dtype)], dim=1
        )

    def _compared(self, x: Tensor) -> Tensor:
        if self.network is not None:
            return self.network(x).flatten(1)  # type: ignore[no-any-return]
        # means of cells times their side: the length of an image grows by no more than it had
        pool = self.options.pool
        return (avg_pool2d(x, pool) * pool if pool > 1 else x).flatten(1)


class Step:
    """Releases projections of a batch, and moves the generator once so many releases have come together."""

    def __init__(self, generator: Generator, rows: Rows, options: Options, batch: int):
        self.generator, self.rows, self.options = generator, rows, options
        device = next(generator.parameters()).device
        self.groups = options.classes if options.labels == "public" else 1
        # what was released and not used yet, and what all releases tell of the mean row, for checkpoints; directions come back from seeds
        self.pending = nn.Module()
        self.pending.register_buffer("count", torch.zeros((), dtype=torch.long))
        self.pending.register_buffer("seeds", torch.zeros(options.releases, dtype=torch.long))
        self.pending.register_buffer(
            "released", torch.zeros(options.releases, batch, options.directions, device=device)
        )
        self.pending.register_buffer("loss", torch.zeros((), device=device))
        if options.labels == "public":
            self.pending.register_buffer(
                "labels", torch.zeros(options.releases, batch, dtype=torch.long, device=device)
            )
        if options.means == "all":
            self.pending.register_buffer("mean", torch.zeros(self.groups, options.row, device=device))
            self.pending.register_buffer("averaged", torch.zeros(self.groups, device=device))
        self.known: dict[int, Tensor] = {}
        self.labels = even(options.generated, options.classes, device)

    def __call__(self, x: Tensor, y: Tensor, noisy: ReleaseGate, optimizer: torch.optim.Optimizer) -> Tensor:
        """One release of the records' rows; [3] records, the last loss (of what was released) for each, and rows clipped."""
        own: Any = self.pending
        seed = int(torch.randint(2**62, ()))
        rows, clipped = self.rows(x)
        projected = self.project(self.rows.labelled(rows, y), y, self.directions(seed))
        # the sensitivity is that of the rows: how far it moves their projections the mechanism knows (see wpriv/mechanisms/projection.py)
        (released,) = noisy(Bounded([projected], SENSITIVITY, "replace-one"))
        slot = int(own.count)
        own.seeds[slot], own.released[slot] = seed, released
        if self.options.labels == "public":
            own.labels[slot] = y
        if self.options.means == "all":
            self.average(slot)
        own.count += 1
        if slot + 1 == self.options.releases:
            own.loss.copy_(self.move(optimizer, noisy.multiplier * SENSITIVITY))
            own.count.zero_()
            self.known.clear()
        return torch.stack([own.loss.new_tensor(len(x)), own.loss * len(x), clipped.sum()])

    def average(self, slot: int) -> None:
        """Brings a release into the mean row m of all of them, by m + g d/k U (y - m U), y the mean of its projections, g falling as 1/t.

        E[U U'] = k/d, so that this is Robbins and Monro's recursion for least squares; the first steps are held back to keep it stable.
        """
        own: Any = self.pending
        u = self.directions(int(own.seeds[slot]))
        wide = self.options.row / self.options.directions
        for group, released in self.released(slot):
            own.averaged[group] += 1
            told = released.mean(0) - own.mean[group] @ u
            own.mean[group] += u @ told * wide / (own.averaged[group] + wide)

    def move(self, optimizer: torch.optim.Optimizer, deviation: float) -> Tensor:
        """Moves the generator against the mean distance to what was released, and returns that distance."""
        optimizer.zero_grad()
        rows, _ = self.rows(self.generator(self.generator.inputs(self.labels)))
        # one pass through the generator for all releases
        leaf = rows.detach().requires_grad_()
        total = torch.zeros((), device=rows.device)
        parts: list[Callable[[Tensor], Tensor]] = [self.to_mean] if self.options.means == "all" else []
        if self.options.spread or not parts:
            parts += [partial(self.to_release, slot, deviation) for slot in range(self.options.releases)]
        for part in parts:
            loss = part(leaf)
            loss.backward()  # type: ignore[no-untyped-call]
            total += loss.detach()
        assert leaf.grad is not None
        rows.backward(leaf.grad)  # type: ignore[no-untyped-call]
        optimizer.step()
        return total

    def released(self, slot: int) -> list[tuple[int, Tensor]]:
        """The projections of one release; by classes where labels are public, those that it has."""
        own: Any = self.pending
        if self.groups == 1:
            return [(0, own.released[slot])]
        parts = [(group, own.released[slot][own.labels[slot] == group]) for group in range(self.groups)]
        return [(group, part) for group, part in parts if len(part)]

    def to_mean(self, rows: Tensor) -> Tensor:
        """Squared distance of the mean generated row to that of all releases; by classes where labels are public."""
        own: Any = self.pending
        rows = self.rows.labelled(rows, self.labels)
        if self.options.labels == "joint":
            # the mean of the outer products with the one-hot labels
            means = (rows.view(self.options.classes, -1, rows.shape[1]).sum(1) / len(rows)).flatten()[None]
        else:
            means = rows.view(self.groups, -1, rows.shape[1]).mean(1)
        found: Tensor = (means - own.mean)[own.averaged > 0].square().sum(1).mean()
        return found

    def to_release(self, slot: int, deviation: float, rows: Tensor) -> Tensor:
        """The share of one release in the mean W_2^2 over the directions, times the dimension: in squared units of a row."""
        own: Any = self.pending
        projected = self.project(
            self.rows.labelled(rows, self.labels), self.labels, self.directions(int(own.seeds[slot]))
        )
        if deviation:
            projected = projected + deviation * torch.randn_like(projected)
        parts = []
        for group, released in self.released(slot):
            made = projected[self.labels == group] if self.groups > 1 else projected
            gap = made.mean(0) - released.mean(0)
            left = (
                line.wasserstein(made - made.mean(0), released - released.mean(0))
                if self.options.spread
                else torch.zeros_like(gap)
            )
            parts.append(((self.options.means == "pending") * gap.square() + self.options.spread * left).mean())
        return torch.stack(parts).mean() * self.options.row / self.options.releases

    def directions(self, seed: int) -> Tensor:
        """The uniform unit directions [row, k] of a seed; they are public."""
        if seed not in self.known:
            device = self.labels.device
            random = torch.Generator(device).manual_seed(seed)
            drawn = torch.randn(self.options.row, self.options.directions, generator=random, device=device)
            self.known[seed] = drawn.div_(drawn.norm(dim=0))
        return self.known[seed]

    def project(self, rows: Tensor, labels: Tensor, u: Tensor) -> Tensor:
        """[N, k]. Rows of joint labels are never written out: of their direction they meet the part of their class alone."""
        if self.options.labels != "joint":
            return rows @ u
        parts = u.view(self.options.classes, self.options.projected, -1)
        if labels is self.labels:
            return (rows.view(self.options.classes, -1, rows.shape[1]) @ parts).flatten(0, 1)
        found = rows.new_empty(len(rows), u.shape[1])
        for label, part in enumerate(parts):
            places = (labels == label).nonzero()[:, 0]
            found[places] = rows[places] @ part
        return found


def random_conv(channels: int) -> nn.Module:
    """Four convolutions of stride 2 with fixed random weights, [N, C, 64, 64] to [N, 512, 4, 4], none of them negative.

    What the paper compares on CelebA are 8192 features of a discriminator that learns from the private images as well; nothing that it
    releases covers that learning. These learn nothing.
    """
    random = torch.Generator().manual_seed(FEATURE_SEED)
    layers: list[nn.Module] = []
    for before, after in zip((channels, *FEATURE_WIDTHS), FEATURE_WIDTHS, strict=False):
        layer = nn.Conv2d(before, after, 4, stride=2, padding=1, bias=False)
        with torch.no_grad():
            # as He et al. 2015: the length of what passes stays about the same
            layer.weight.copy_(torch.randn(layer.weight.shape, generator=random) * math.sqrt(2 / (16 * before)))
        layers += [layer.requires_grad_(False), nn.ReLU()]
    return nn.Sequential(*layers)
