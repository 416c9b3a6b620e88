"""The oracle of accepted networks: each record alone by plain autograd in float64, its gradient clipped and added."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from wpriv.training.clipping.clip import clipped_sum
from wpriv.training.clipping.record_trees import Records, called


def literal_sum(model: nn.Module, loss, x: Records, y: Tensor, norm: float | None = None) -> tuple[Tensor, Tensor]:
    """Return the sum of the clipped gradients as one vector, and their norms; the median norm is the bound if none."""
    trained, rows = [p for p in model.parameters() if p.requires_grad], []
    for k in range(len(x)):
        grads = torch.autograd.grad(loss(called(model, x[k : k + 1]), y[k : k + 1]).sum(), trained, allow_unused=True)
        dense = [torch.zeros_like(p) if g is None else g.to_dense() for p, g in zip(trained, grads, strict=True)]
        rows.append(torch.cat([g.flatten() for g in dense]))
    norms = torch.stack([row.norm() for row in rows])
    bound = float(norms.median()) if norm is None else norm
    return sum((row * min(1.0, bound / float(row.norm())) for row in rows), torch.zeros_like(rows[0])), norms


def require_literal(model: nn.Module, loss, x: Records, y: Tensor, method: str = "auto") -> None:
    """Assert that the clipped sum and the norms are the literal ones; half of the records are clipped."""
    wanted, norms = literal_sum(model, loss, x, y)
    found = clipped_sum(model, loss, x, y, norm=float(norms.median()), adjacency="add-remove", method=method)
    total = torch.cat([part.flatten() for part in found.total.parts])
    assert float((total - wanted).norm() / wanted.norm()) <= 1e-10
    torch.testing.assert_close(found.norms, norms, rtol=1e-6, atol=0)
