"""The step of private sliced distances: the release of a batch, and the generator's update from releases."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import avg_pool2d, one_hot

from wpriv.errors import UsageError
from wpriv.papers.tasks._generation import balanced_labels
from wpriv.papers.tasks._swd_generate_options import FEATURE_SEED, FEATURE_WIDTHS, SENSITIVITY, Options
from wpriv.training.clipping.example_gradients import squares_of
from wpriv.training.engine.job import ReleaseGate
from wpriv.training.engine.update_rules import UpdateRule
from wpriv.training.models._layers import Generator
from wpriv.training.noise.release import Bounded
from wpriv.transport import line


class RowEncoder:
    """Map images to rows of nonnegative numbers of norm at most 1; a row depends on its own image (and label) alone."""

    def __init__(self, options: Options, shape: Sequence[int], device: torch.device):
        self.options = options
        self.network = random_conv(shape[0]).to(device) if options.features == "random-conv" else None
        size = self._compared(torch.zeros(1, *shape, device=device)).shape[1]
        if size != options.projected or (options.pool > 1 and (shape[1] % options.pool or shape[2] % options.pool)):
            raise UsageError(
                f"options: images {list(shape)} have {size} numbers to compare; {options.projected} are accounted for. "
                "Change dimension, pool or features"
            )

    def __call__(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return images clipped to the bound and divided by it, [N, projected], and which of them were clipped, [N]."""
        compared = self._compared(x)
        norms = squares_of(compared).sqrt().unsqueeze(1)
        # slightly above the norm, so that no row is longer than 1 in floating point either
        slack = 1 + 64 * torch.finfo(norms.dtype).eps
        return compared / (norms * slack).clamp(min=self.options.bound), norms[:, 0] * slack > self.options.bound

    def labelled(self, rows: Tensor, labels: Tensor) -> Tensor:
        """Return the rows with their label appended for ``labels: appended``, else the rows unchanged."""
        if self.options.labels != "appended":
            return rows
        share = self.options.share
        return torch.cat(
            [rows * math.sqrt(1 - share**2), share * one_hot(labels, self.options.classes).to(rows.dtype)], dim=1
        )

    def _compared(self, x: Tensor) -> Tensor:
        if self.network is not None:
            return self.network(x).flatten(1)  # type: ignore[no-any-return]
        # means of cells times their side: the norm of an image does not grow
        pool = self.options.pool
        return (avg_pool2d(x, pool) * pool if pool > 1 else x).flatten(1)


class ProjectionStep:
    """Release projections of a batch, and update the generator after every ``options.releases`` releases."""

    def __init__(self, generator: Generator, encoder: RowEncoder, options: Options, batch: int):
        self.generator, self.encode, self.options = generator, encoder, options
        device = next(generator.parameters()).device
        self.groups = options.classes if options.labels == "public" else 1
        # for checkpoints: releases that are not used yet, and the mean row of all releases; seeds give directions
        self.pending = nn.Module()
        self.pending.register_buffer("count", torch.zeros((), dtype=torch.long))
        self.pending.register_buffer("seeds", torch.zeros(options.releases, dtype=torch.long))
        shape = (options.releases, batch)
        self.pending.register_buffer("released", torch.zeros(*shape, options.directions, device=device))
        self.pending.register_buffer("loss", torch.zeros((), device=device))
        if options.labels == "public":
            self.pending.register_buffer("labels", torch.zeros(shape, dtype=torch.long, device=device))
        if options.means == "all":
            self.pending.register_buffer("mean", torch.zeros(self.groups, options.row, device=device))
            self.pending.register_buffer("averaged", torch.zeros(self.groups, device=device))
        self.directions_of_seed: dict[int, Tensor] = {}
        self.labels = balanced_labels(options.generated, options.classes, device)

    def __call__(self, x: Tensor, y: Tensor, gate: ReleaseGate, optimizer: UpdateRule) -> Tensor:
        """Release projections of the records' rows, and update the generator where it is due.

        Returns:
            [3] the number of records, the loss of the last update times that number, and the number of clipped rows.
        """
        pending: Any = self.pending
        seed = int(torch.randint(2**62, ()))
        rows, clipped = self.encode(x)
        projected = self.project(self.encode.labelled(rows, y), y, self.directions(seed))
        # the sensitivity of the rows; the mechanism derives that of projections (wpriv/papers/mechanisms/projection.py)
        (released,) = gate(Bounded([projected], SENSITIVITY, "replace-one"))
        slot = int(pending.count)
        pending.seeds[slot], pending.released[slot] = seed, released
        if self.options.labels == "public":
            pending.labels[slot] = y
        if self.options.means == "all":
            self.update_mean(slot)
        pending.count += 1
        if slot + 1 == self.options.releases:
            pending.loss.copy_(self.update_generator(optimizer, gate.multiplier * SENSITIVITY))
            pending.count.zero_()
            self.directions_of_seed.clear()
        return torch.stack([pending.loss.new_tensor(len(x)), pending.loss * len(x), clipped.sum()])

    def update_mean(self, slot: int) -> None:
        """Update the mean row m of all releases to m + g d/k U (y - m U), with y the mean projection and g ~ 1/t.

        As E[U U'] = k/d, this is the recursion of Robbins and Monro for least squares. The first steps are shortened to
        keep it stable.
        """
        pending: Any = self.pending
        u = self.directions(int(pending.seeds[slot]))
        ratio = self.options.row / self.options.directions
        for group, released in self.released(slot):
            pending.averaged[group] += 1
            residual = released.mean(0) - pending.mean[group] @ u
            pending.mean[group] += u @ residual * ratio / (pending.averaged[group] + ratio)

    def update_generator(self, optimizer: UpdateRule, deviation: float) -> Tensor:
        """Take a step that reduces the mean distance to the releases; return that distance."""
        optimizer.zero_grad()
        rows, _ = self.encode(self.generator(self.generator.inputs(self.labels)))
        # one pass through the generator for all releases
        leaf = rows.detach().requires_grad_()
        total = torch.zeros((), device=rows.device)
        distances: list[Callable[[Tensor], Tensor]] = [self.distance_to_mean] if self.options.means == "all" else []
        if self.options.spread or not distances:
            distances += [partial(self.distance_to_release, slot, deviation) for slot in range(self.options.releases)]
        for distance in distances:
            loss = distance(leaf)
            loss.backward()  # type: ignore[no-untyped-call]
            total += loss.detach()
        assert leaf.grad is not None
        rows.backward(leaf.grad)  # type: ignore[no-untyped-call]
        optimizer.step()
        return total

    def released(self, slot: int) -> list[tuple[int, Tensor]]:
        """Return the projections of one release; for public labels by class, for the classes that it has."""
        pending: Any = self.pending
        if self.groups == 1:
            return [(0, pending.released[slot])]
        parts = [(group, pending.released[slot][pending.labels[slot] == group]) for group in range(self.groups)]
        return [(group, part) for group, part in parts if len(part)]

    def distance_to_mean(self, rows: Tensor) -> Tensor:
        """Return the squared distance of the mean generated row to that of all releases; by class for public labels."""
        pending: Any = self.pending
        rows = self.encode.labelled(rows, self.labels)
        if self.options.labels == "joint":
            # the mean of the outer products with the one-hot labels
            means = (rows.view(self.options.classes, -1, rows.shape[1]).sum(1) / len(rows)).flatten()[None]
        else:
            means = rows.view(self.groups, -1, rows.shape[1]).mean(1)
        distance: Tensor = (means - pending.mean)[pending.averaged > 0].square().sum(1).mean()
        return distance

    def distance_to_release(self, slot: int, deviation: float, rows: Tensor) -> Tensor:
        """Return one release's share of the mean W_2^2 over directions times the dimension, in squared row units."""
        pending: Any = self.pending
        projected = self.project(
            self.encode.labelled(rows, self.labels), self.labels, self.directions(int(pending.seeds[slot]))
        )
        if deviation:
            projected = projected + deviation * torch.randn_like(projected)
        parts = []
        for group, released in self.released(slot):
            generated = projected[self.labels == group] if self.groups > 1 else projected
            gap = generated.mean(0) - released.mean(0)
            centred = (
                line.wasserstein(generated - generated.mean(0), released - released.mean(0))
                if self.options.spread
                else torch.zeros_like(gap)
            )
            parts.append(((self.options.means == "pending") * gap.square() + self.options.spread * centred).mean())
        return torch.stack(parts).mean() * self.options.row / self.options.releases

    def directions(self, seed: int) -> Tensor:
        """Return the uniform unit directions [row, k] of a seed; they are public."""
        if seed not in self.directions_of_seed:
            device = self.labels.device
            random = torch.Generator(device).manual_seed(seed)
            normal = torch.randn(self.options.row, self.options.directions, generator=random, device=device)
            self.directions_of_seed[seed] = normal.div_(normal.norm(dim=0))
        return self.directions_of_seed[seed]

    def project(self, rows: Tensor, labels: Tensor, u: Tensor) -> Tensor:
        """Project rows on directions ``u``: [N, k]. For joint labels only the block of a row's class is multiplied."""
        if self.options.labels != "joint":
            return rows @ u
        parts = u.view(self.options.classes, self.options.projected, -1)
        if labels is self.labels:
            return (rows.view(self.options.classes, -1, rows.shape[1]) @ parts).flatten(0, 1)
        projected = rows.new_empty(len(rows), u.shape[1])
        for label, part in enumerate(parts):
            members = (labels == label).nonzero()[:, 0]
            projected[members] = rows[members] @ part
        return projected


def random_conv(channels: int) -> nn.Module:
    """Build four convolutions of stride 2 with fixed random weights, from [N, C, 64, 64] to nonnegative [N, 512, 4, 4].

    The paper compares on CelebA 8192 features of a discriminator that is trained on the private images as well, which
    no release of the paper covers. These features are not trained.
    """
    random = torch.Generator().manual_seed(FEATURE_SEED)
    layers: list[nn.Module] = []
    for width, next_width in zip((channels, *FEATURE_WIDTHS), FEATURE_WIDTHS, strict=False):
        layer = nn.Conv2d(width, next_width, 4, stride=2, padding=1, bias=False)
        with torch.no_grad():
            # as He et al. 2015: norms stay about the same from layer to layer
            layer.weight.copy_(torch.randn(layer.weight.shape, generator=random) * math.sqrt(2 / (16 * width)))
        layers += [layer.requires_grad_(False), nn.ReLU()]
    return nn.Sequential(*layers)
