"""Stabilised Sinkhorn iteration: the coupling a_i b_j exp(E_ij + phi_i + gamma_j) of two marginals.

An exact step in the log domain computes potentials phi and gamma and absorbs them into a kernel K = exp(E + phi +
gamma). On the kernel the iteration is a pair of matrix-vector products, u = 1 / K(bv) and v = 1 / K'(au): fast, but
accurate only while the scalings u, v stay near 1. Once they have grown, the next exact step absorbs them in turn.
Exponents are clipped at a floor below the rounding error, which avoids denormal numbers (those are a hundred times
slower).

The fast steps are over-relaxed (Thibault, Chizat, Dossal, Papadakis 2021, "Overrelaxed Sinkhorn-Knopp Algorithm for
Regularized Optimal Transport"). The factor follows from Young's theory of successive over-relaxation and the observed
rate of convergence.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

FLOOR = {torch.float32: -60.0, torch.float64: -500.0}
"""Exponents are clipped here."""
MAX_LOG_SCALING = {torch.float32: 20.0, torch.float64: 150.0}
"""Limit of the log of a scaling: clipped entries then weigh e^-20 (e^-200) at most, and no product is denormal."""
STEPS_PER_CHECK = 5
"""Fast steps between two checks of the error; on a GPU each check waits for the device."""
MAX_RELAXATION = 1.99
STEEP, FACTOR = 200.0, 4.0
"""Exponents wider than STEEP are first divided by powers of FACTOR: lambda is lowered to its value in stages."""
FLAT = 1.0
"""For narrower exponents, potentials are computed by log1p and expm1, to keep the digits of a large lambda."""


@dataclass(frozen=True)
class Solution:
    """The result of the iteration for B problems.

    phi [B, n] and gamma [B, m] are the potentials, plan [B, n, m] the coupling. Its row sums equal a up to rounding;
    error [B] is the l1 distance between its column sums and b.
    """

    phi: Tensor
    gamma: Tensor
    plan: Tensor
    error: Tensor
    iterations: int


def solve(exponent: Tensor, a: Tensor, b: Tensor, gamma: Tensor | None, tol: float, max_iterations: int) -> Solution:
    """Iterate until the error of every problem is at most ``tol``, or for ``max_iterations``.

    Args:
        exponent: [B, n, m] finite numbers E. a, b: [B, n] and [B, m] weights >= 0, each row with sum 1.
        gamma: [B, m] potentials to start from; without them, steep problems are annealed. tol: > 0.
        max_iterations: >= 1, over all stages together.
    """
    widths = exponent.amax((1, 2)) - exponent.amin((1, 2))
    iterations, width = 0, float(widths.max())
    if gamma is None:
        gamma = torch.zeros_like(b)
        for stage in range(math.ceil(math.log(max(width / STEEP, 1.0), FACTOR)), 0, -1):
            # the potentials only start the next stage, in whose units they are FACTOR times larger: a rough error
            # suffices
            budget = min(100, (max_iterations - iterations) // 2)
            if budget > 0:
                solution = _stage(exponent * FACTOR**-stage, a, b, gamma, max(tol, 0.02), budget)
                gamma, iterations = solution.gamma * FACTOR, iterations + solution.iterations
    solution = _stage(exponent, a, b, gamma, tol, max_iterations - iterations)
    phi, flat = solution.phi, widths < FLAT
    if bool(flat.any()):
        gaps = torch.expm1(exponent[flat] + solution.gamma[flat, None, :])
        phi[flat] = -torch.log1p((b[flat, None, :] * gaps).sum(2))
    return Solution(phi, solution.gamma, solution.plan, solution.error, iterations + solution.iterations)


def _stage(exponent: Tensor, a: Tensor, b: Tensor, gamma: Tensor, tol: float, max_iterations: int) -> Solution:
    """Iterate at one regularisation: exact steps, with runs of fast steps between them."""
    log_a, log_b, floor = a.log(), b.log(), FLOOR[exponent.dtype]
    iterations, relaxation = 0, Relaxation()
    while True:
        phi = -torch.logsumexp(exponent + (log_b + gamma)[:, None, :], 2)
        gamma = -torch.logsumexp(exponent + (log_a + phi)[:, :, None], 1)
        # an entry can exceed the upper end only if a weight is 0
        kernel = (exponent + phi[:, :, None] + gamma[:, None, :]).clamp_(floor, -floor).exp_()
        u, v, error, steps = _fast_steps(kernel, a, b, tol, max_iterations - iterations - 1, relaxation)
        iterations += steps + 1
        if error is not None:
            plan = kernel.mul_((a * u)[:, :, None]).mul_((b * v)[:, None, :])
            return Solution(phi + u.log(), gamma + v.log(), plan, error, iterations)
        gamma = gamma + v.log()


def _fast_steps(
    kernel: Tensor, a: Tensor, b: Tensor, tol: float, max_steps: int, relaxation: Relaxation
) -> tuple[Tensor, Tensor, Tensor | None, int]:
    """Iterate on the kernel; return the scalings u and v, the error, and the number of steps.

    Stops at an error of ``tol`` or after ``max_steps``; or, with None as the error, once the scalings have grown too
    large.
    """
    transposed, limit = kernel.mT, MAX_LOG_SCALING[kernel.dtype]
    u, v, steps = torch.ones_like(a), torch.ones_like(b), 0
    while True:
        sums = _matvec(kernel, b * v)
        row_error = float((a * (u * sums - 1).abs()).sum(1).max())
        if row_error <= tol or steps >= max_steps:
            # a plain half step makes the row sums exact and moves the error to the columns
            exact = 1 / sums
            error = (b * (v * _matvec(transposed, a * exact) - 1).abs()).sum(1)
            if steps >= max_steps or float(error.max()) <= tol:
                return exact, v, error, steps
        omega, previous = relaxation.factor(row_error), v
        for step in range(min(STEPS_PER_CHECK, max_steps - steps)):
            sums = _matvec(kernel, b * v) if step else sums
            u = u * (u * sums) ** -omega if omega > 1 else 1 / sums
            sums = _matvec(transposed, a * u)
            v = v * (v * sums) ** -omega if omega > 1 else 1 / sums
            steps += 1
        largest = float(torch.maximum(u.log().abs().amax(), v.log().abs().amax()))
        if not largest <= limit:
            return u, v if math.isfinite(largest) else previous, None, steps


def _matvec(matrix: Tensor, vector: Tensor) -> Tensor:
    """Multiply [B, n, m] by [B, m]; a matrix and a vector for B = 1, which is faster than a batch of one."""
    return torch.mv(matrix[0], vector[0])[None] if len(matrix) == 1 else torch.bmm(matrix, vector[:, :, None])[:, :, 0]


class Relaxation:
    """Choose the relaxation factor omega from the observed errors, which are given every STEPS_PER_CHECK steps.

    If the plain iteration reduces the error by a factor theta a step, relaxation by omega reduces it by r with (r +
    omega - 1)^2 = r omega^2 theta, and the best omega is 2 / (1 + sqrt(1 - theta)) (Young 1954). The rate is measured
    after the transient of the last change of omega. In a batch, the slowest problem determines omega.
    """

    def __init__(self) -> None:
        self.omega, self.lowest_error = 1.0, math.inf
        self.steps_since_reference, self.reference_error = 0, math.inf

    def factor(self, error: float) -> float:
        """Return the factor of the next STEPS_PER_CHECK steps, given the error before them."""
        if error > 3 * self.lowest_error:
            # far from the solution a large factor may increase the error, which the plain iteration never does
            return self._change(1 + (self.omega - 1) / 2 if self.omega > 1.1 else 1.0)
        self.lowest_error = min(self.lowest_error, error)
        self.steps_since_reference += STEPS_PER_CHECK
        span = max(STEPS_PER_CHECK, math.ceil(0.5 / (2 - self.omega)))
        if math.isinf(self.reference_error):
            if self.steps_since_reference > span:
                self.reference_error, self.steps_since_reference = error, 0
        elif self.steps_since_reference >= span:
            rate = (error / self.reference_error) ** (1 / self.steps_since_reference)
            if self.omega - 1 < rate < 1:
                theta = (rate + self.omega - 1) ** 2 / (rate * self.omega**2)
                return self._change(min(2 / (1 + math.sqrt(max(1 - theta, 0.0))), MAX_RELAXATION))
            self.reference_error, self.steps_since_reference = error, 0
        return self.omega

    def _change(self, omega: float) -> float:
        self.omega, self.steps_since_reference, self.reference_error = omega, 0, math.inf
        self.lowest_error = math.inf if omega == 1 else self.lowest_error
        return omega
