"""Sinkhorn's iteration on a matrix of exponents, stabilised: the coupling a_i b_j exp(E_ij + phi_i + gamma_j) of two marginals.

An exact step in the log domain finds potentials phi and gamma and absorbs them into a kernel K = exp(E + phi + gamma). On the kernel the
iteration is a pair of products with vectors, u = 1 / K(bv) and v = 1 / K'(au): quick, but sound only while the scalings u, v stay near 1.
When they have grown they are absorbed in turn by the next exact step. Exponents are clipped at a floor below what rounding sees, so that no
denormal number arises (those are a hundred times slower).

The quick steps are over-relaxed (Thibault, Chizat, Dossal, Papadakis 2021, "Overrelaxed Sinkhorn-Knopp Algorithm for Regularized Optimal
Transport"), by a factor that Young's theory of successive over-relaxation gives from the rate that is seen.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

FLOOR = {torch.float32: -60.0, torch.float64: -500.0}
REACH = {torch.float32: 20.0, torch.float64: 150.0}
"""What the log of a scaling may grow to: clipped entries then weigh e^-20 (e^-200) at most, and no product is a denormal number."""
BLOCK = 5
"""Quick steps between two looks at the error; on a GPU each look waits for the device."""
MOST_RELAXED = 1.99
STEEP, FACTOR = 200.0, 4.0
"""Exponents wider than STEEP are first divided by powers of FACTOR: lambda is lowered to its value in stages."""
FLAT = 1.0
"""Of exponents narrower than this the potentials are found from 1 + small numbers, which keeps the digits of a large lambda times them."""


@dataclass(frozen=True)
class Scaled:
    """How the iteration ended, for B problems at once.

    phi [B, n] and gamma [B, m] are the potentials, plan [B, n, m] the coupling; its rows have their sums to rounding, and error [B] is the
    l1 distance between the sums of its columns and b.
    """

    phi: Tensor
    gamma: Tensor
    plan: Tensor
    error: Tensor
    iterations: int


def solve(exponent: Tensor, a: Tensor, b: Tensor, gamma: Tensor | None, tol: float, most: int) -> Scaled:
    """Iterates until every problem's error is at most ``tol``, or ``most`` iterations are spent.

    Args:
        exponent: [B, n, m] finite numbers E. a, b: [B, n] and [B, m] weights >= 0, each row with sum 1.
        gamma: [B, m] potentials to start from; without them, steep problems are annealed. tol: > 0. most: >= 1, over all stages together.
    """
    spent, width = 0, float((exponent.amax((1, 2)) - exponent.amin((1, 2))).max())
    if gamma is None:
        gamma = torch.zeros_like(b)
        for stage in range(math.ceil(math.log(max(width / STEEP, 1.0), FACTOR)), 0, -1):
            # potentials of the last stage, in its units, are good enough at a rough error
            budget = min(100, (most - spent) // 2)
            if budget > 0:
                found = _stage(exponent * FACTOR**-stage, a, b, gamma, max(tol, 0.02), budget)
                gamma, spent = found.gamma * FACTOR, spent + found.iterations
    found = _stage(exponent, a, b, gamma, tol, most - spent)
    phi = found.phi
    if width < FLAT:
        phi = -torch.log1p((b[:, None, :] * torch.expm1(exponent + found.gamma[:, None, :])).sum(2))
    return Scaled(phi, found.gamma, found.plan, found.error, spent + found.iterations)


def _stage(exponent: Tensor, a: Tensor, b: Tensor, gamma: Tensor, tol: float, most: int) -> Scaled:
    """The iteration at one regulariser: exact steps, and runs of quick ones between them."""
    log_a, log_b, floor = a.log(), b.log(), FLOOR[exponent.dtype]
    spent, pace = 0, Pace()
    while True:
        phi = -torch.logsumexp(exponent + (log_b + gamma)[:, None, :], 2)
        gamma = -torch.logsumexp(exponent + (log_a + phi)[:, :, None], 1)
        # only where a weight is 0 can an entry lie above the upper end
        kernel = (exponent + phi[:, :, None] + gamma[:, None, :]).clamp_(floor, -floor).exp_()
        u, v, error, steps = _quick(kernel, a, b, tol, most - spent - 1, pace)
        spent += steps + 1
        if error is not None:
            plan = kernel.mul_((a * u)[:, :, None]).mul_((b * v)[:, None, :])
            return Scaled(phi + u.log(), gamma + v.log(), plan, error, spent)
        gamma = gamma + v.log()


def _quick(
    kernel: Tensor, a: Tensor, b: Tensor, tol: float, most: int, pace: Pace
) -> tuple[Tensor, Tensor, Tensor | None, int]:
    """Quick steps until the error is met, the steps are spent, or the scalings have grown too far: then the error is None."""
    across, reach = kernel.mT, REACH[kernel.dtype]
    u, v, steps = torch.ones_like(a), torch.ones_like(b), 0
    while True:
        sums = _times(kernel, b * v)
        seen = float((a * (u * sums - 1).abs()).sum(1).max())
        if seen <= tol or steps >= most:
            # a plain half step makes the rows exact and leaves the error in the columns
            exact = 1 / sums
            error = (b * (v * _times(across, a * exact) - 1).abs()).sum(1)
            if steps >= most or float(error.max()) <= tol:
                return exact, v, error, steps
        relax, kept = pace.factor(seen), v
        for step in range(min(BLOCK, most - steps)):
            sums = _times(kernel, b * v) if step else sums
            u = u * (u * sums) ** -relax if relax > 1 else 1 / sums
            sums = _times(across, a * u)
            v = v * (v * sums) ** -relax if relax > 1 else 1 / sums
            steps += 1
        grown = float(torch.maximum(u.log().abs().amax(), v.log().abs().amax()))
        if not grown <= reach:
            return u, v if math.isfinite(grown) else kept, None, steps


def _times(matrix: Tensor, vector: Tensor) -> Tensor:
    """[B, n, m] times [B, m]; a single problem as a matrix and a vector, which is quicker than a batch of one."""
    return torch.mv(matrix[0], vector[0])[None] if len(matrix) == 1 else torch.bmm(matrix, vector[:, :, None])[:, :, 0]


class Pace:
    """Chooses the relaxation from the errors seen, one look every BLOCK steps; of many problems the slowest sets it.

    Where the plain iteration shrinks the error by theta a step, relaxation by w shrinks it by r with (r + w - 1)^2 = r w^2 theta, and the
    best w is 2 / (1 + sqrt(1 - theta)) (Young 1954). The rate is read off when the transient of the last change has died out.
    """

    def __init__(self) -> None:
        self.relax, self.best = 1.0, math.inf
        self.waited, self.mark = 0, math.inf

    def factor(self, seen: float) -> float:
        """The factor of the next BLOCK steps, given the error before them."""
        if seen > 3 * self.best:
            # far from the solution a large factor can drive the error up: the plain iteration never does
            return self._change(1 + (self.relax - 1) / 2 if self.relax > 1.1 else 1.0)
        self.best = min(self.best, seen)
        self.waited += BLOCK
        span = max(BLOCK, math.ceil(0.5 / (2 - self.relax)))
        if math.isinf(self.mark):
            if self.waited > span:
                self.mark, self.waited = seen, 0
        elif self.waited >= span:
            rate = (seen / self.mark) ** (1 / self.waited)
            if self.relax - 1 < rate < 1:
                theta = (rate + self.relax - 1) ** 2 / (rate * self.relax**2)
                return self._change(min(2 / (1 + math.sqrt(max(1 - theta, 0.0))), MOST_RELAXED))
            self.mark, self.waited = seen, 0
        return self.relax

    def _change(self, relax: float) -> float:
        self.relax, self.waited, self.mark = relax, 0, math.inf
        self.best = math.inf if relax == 1 else self.best
        return relax
