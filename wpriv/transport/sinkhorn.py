"""Entropic optimal transport: W_{p,lambda} and the Sinkhorn divergence between weighted samples, with gradients.

W_{p,lambda}(P, Q) is the minimum over couplings of ``E ||U - V||_p^p + lambda I(U; V)``, with the mutual information I
in nats. It differs from the variants that subtract an entropy (by a constant of the weights) and from those that report
the transport cost alone.
An exact step in the log domain absorbs the potentials into a kernel, on which the iteration is a pair of matrix-vector
products: fast, but accurate only while the scalings stay near 1; once they have grown, the next exact step absorbs
them. Exponents are clipped at a floor below the rounding error, which avoids denormal numbers (a hundred times slower).
The fast steps are over-relaxed (Thibault, Chizat, Dossal, Papadakis 2021), by a factor from the observed rate of
convergence.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from wpriv.errors import Unsupported, UsageError
from wpriv.transport.costs import exponents, full_precision, plan_gradient

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


COARSE = 0.01
"""The relative error of a plan by rounding above which a lambda is refused."""


@dataclass(frozen=True)
class Entropic:
    """W_{p,lambda} of one pair of samples, or of a batch [...] of them, and the state of convergence.

    Args:
        value: [...] the dual value, in units of the cost; a lower bound of W_{p,lambda} up to rounding, differentiable
            in the points.
        marginal_error: [...] l1 distance between the column sums of the plan and b; the row sums are a.
        converged: [...] whether that error is at most ``tol``.
        iterations: of all stages together.
        f: [..., n] potential in units of the cost; ``plan_ij = a_i b_j exp((f_i + g_j - C_ij) / lambda)``.
        g: [..., m] the other potential, which may start a later run.
        plan: [..., n, m] the coupling.
    """

    value: Tensor
    marginal_error: Tensor
    converged: Tensor
    iterations: int
    f: Tensor
    g: Tensor
    plan: Tensor


@dataclass(frozen=True)
class Divergence:
    """A Sinkhorn divergence [...] and its three problems: between the samples, and of each sample with itself."""

    value: Tensor
    between: Entropic
    first: Entropic
    second: Entropic

    @property
    def converged(self) -> Tensor:
        """Tell whether all three problems converged."""
        return self.between.converged & self.first.converged & self.second.converged


def entropic(
    x: Tensor,
    y: Tensor,
    lam: float,
    p: float = 2.0,
    *,
    a: Tensor | None = None,
    b: Tensor | None = None,
    tol: float = 1e-4,
    max_iterations: int = 2000,
    start: Tensor | None = None,
) -> Entropic:
    """Compute W_{p,lambda} between weighted samples by Sinkhorn's iteration, with its gradient in the points.

    If the iteration does not converge, ``converged`` is False, and value and gradient are those of the last plan.

    Args:
        x, y: [..., n, d] and [..., m, d] points, float32 or float64, on one device.
        lam: lambda > 0, in units of the cost.
        p: order of the ground cost, p >= 1.
        a, b: [..., n] and [..., m] weights >= 0 with sum 1, constants of the gradient; uniform where None.
        tol: tolerance of the marginal error; the error of the gradient is a few times larger.
        max_iterations: of all stages together.
        start: [..., m] the ``g`` of an earlier run on nearby points; without it a small lambda is annealed.
    Raises:
        UsageError: shapes, types or ranges are wrong, or a number is not finite.
        Unsupported: lambda is so small that rounding errors of the cost would dominate the plan.
    Source:
        Cuturi (2013); Schmitzer (2019), stabilised scaling; the envelope theorem, as in Genevay, Peyre, Cuturi (2018).

    >>> x, y = torch.tensor([[0.0], [1.0]]), torch.tensor([[1.0], [0.0]])
    >>> round(entropic(x, y, lam=0.3, p=1).value.item(), 4)
    0.1974
    """
    _check(x, y, lam, p, tol, max_iterations)
    batch, (n, m) = x.shape[:-2], (x.shape[-2], y.shape[-2])
    first, second = x.detach().reshape(-1, n, x.shape[-1]), y.detach().reshape(-1, m, y.shape[-1])
    weights_a, weights_b = _weights(a, "a", x), _weights(b, "b", y)
    with torch.no_grad(), full_precision(x.device):
        cost = exponents(first, second, lam, p)
        _check_rounding(float(cost.largest.amax()), lam, x, y)
        gamma = None if start is None else (_potential(start, y) - cost.column) / lam
        solution = solve(cost.matrix, weights_a, weights_b, gamma, tol, max_iterations)
        f, g = solution.phi * lam + cost.row, solution.gamma * lam + cost.column
        value = (weights_a * f).sum(1) + (weights_b * g).sum(1)
    plan, error = solution.plan.reshape(*batch, n, m), solution.error.reshape(batch)
    value = _Envelope.apply(x, y, plan, value.reshape(batch), p)  # type: ignore[no-untyped-call]
    return Entropic(value, error, error <= tol, solution.iterations, f.reshape(*batch, n), g.reshape(*batch, m), plan)


def divergence(
    x: Tensor,
    y: Tensor,
    lam: float,
    p: float = 2.0,
    *,
    a: Tensor | None = None,
    b: Tensor | None = None,
    tol: float = 1e-4,
    max_iterations: int = 2000,
) -> Divergence:
    """Compute the Sinkhorn divergence W_{p,lambda}(x, y) - W_{p,lambda}(x, x) / 2 - W_{p,lambda}(y, y) / 2.

    Differentiable in the points; nonnegative for 1 <= p <= 2, and 0 for equal samples. Arguments and errors as in
    ``entropic``.

    Source:
        Genevay, Peyre, Cuturi (2018); Feydy et al. (2019), Theorem 1.
    """
    between = entropic(x, y, lam, p, a=a, b=b, tol=tol, max_iterations=max_iterations)
    first = entropic(x, x, lam, p, a=a, b=a, tol=tol, max_iterations=max_iterations)
    second = entropic(y, y, lam, p, a=b, b=b, tol=tol, max_iterations=max_iterations)
    return Divergence(between.value - (first.value + second.value) / 2, between, first, second)


class _Envelope(torch.autograd.Function):
    """Forward: the computed value. Backward: the gradient of <plan, C> at the fixed plan.

    The value is a maximum over potentials, and the plan belongs to the maximiser, so that by the envelope theorem
    there are no other terms.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, y: Tensor, plan: Tensor, value: Tensor, p: float) -> Tensor:
        ctx.save_for_backward(x, y, plan)
        ctx.p = p
        return value

    @staticmethod
    @once_differentiable  # type: ignore[untyped-decorator]
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        shapes = [t.shape for t in ctx.saved_tensors]
        x, y, plan = (t.detach().reshape(-1, *t.shape[-2:]) for t in ctx.saved_tensors)
        plan = plan * grad.reshape(-1, 1, 1)
        with full_precision(x.device):
            grad_x = plan_gradient(plan, x, y, ctx.p).reshape(shapes[0]) if ctx.needs_input_grad[0] else None
            grad_y = plan_gradient(plan.mT, y, x, ctx.p).reshape(shapes[1]) if ctx.needs_input_grad[1] else None
        return grad_x, grad_y, None, None, None


def _check(x: Tensor, y: Tensor, lam: float, p: float, tol: float, max_iterations: int) -> None:
    if x.dtype not in FLOOR or y.dtype != x.dtype or x.device != y.device:
        description = f"{x.dtype} on {x.device} and {y.dtype} on {y.device}"
        raise UsageError(f"x and y must both be float32 or both float64, on one device; found {description}")
    if (
        x.ndim < 2
        or y.ndim != x.ndim
        or x.shape[:-2] != y.shape[:-2]
        or x.shape[-1] != y.shape[-1]
        or not (x.numel() and y.numel())
    ):
        raise UsageError(
            "x and y must be points [..., n, d] and [..., m, d] with n, m >= 1; "
            f"found {list(x.shape)} and {list(y.shape)}"
        )
    if not 0 < lam < math.inf:
        raise UsageError(
            f"lambda must be greater than 0 and finite; found {lam}. "
            "For transport without regularisation use transport.line or transport.exact"
        )
    if not 1 <= p < math.inf:
        raise UsageError(f"p must be at least 1 and finite; found {p}")
    min_tol = 8 * torch.finfo(x.dtype).eps
    if not min_tol <= tol < 1:
        raise UsageError(f"tol must lie in [{min_tol:.2g}, 1), given the precision of {x.dtype}; found {tol}")
    if max_iterations < 1:
        raise UsageError(f"max_iterations must be at least 1; found {max_iterations}")


def _check_rounding(largest: float, lam: float, x: Tensor, y: Tensor) -> None:
    """Raise an error if points are not finite, or if the rounding error of the exponents exceeds COARSE."""
    error = largest * torch.finfo(x.dtype).eps
    if error <= COARSE:
        return
    if not (torch.isfinite(x).all() and torch.isfinite(y).all()):
        raise UsageError("x and y must be finite; found inf or nan among the points")
    other = "float64, or " if x.dtype == torch.float32 else ""
    remedy = f"lambda >= {lam * error / COARSE:.2g}" if math.isfinite(error) else "smaller points"
    raise Unsupported(
        f"lambda = {lam:g} is too small for {x.dtype}: rounding the cost changes the plan by {error:.1g}. "
        f"Use {other}{remedy}"
    )


def _weights(given: Tensor | None, name: str, points: Tensor) -> Tensor:
    """Validate weights and return them as [B, n] with sum 1 up to rounding."""
    shape = points.shape[:-1]
    if given is None:
        return points.new_full((math.prod(shape[:-1]), shape[-1]), 1 / shape[-1])
    if (
        given.requires_grad
        or given.shape not in (shape, shape[-1:])
        or given.dtype != points.dtype
        or given.device != points.device
    ):
        raise UsageError(
            f"{name} must be {list(shape)} constant weights, {points.dtype} on {points.device}; "
            f"found {list(given.shape)}, {given.dtype} on {given.device}{', with a gradient' * given.requires_grad}"
        )
    weights = given.expand(shape).reshape(-1, shape[-1])
    total = weights.sum(1, keepdim=True)
    if not ((weights >= 0).all() and ((total - 1).abs() <= 1e-3).all()):
        sums = f"found a minimum of {float(weights.min()):g} and a sum of {float(total[0]):g}"
        raise UsageError(f"{name} must be weights of at least 0 with sum 1; {sums}")
    return weights / total


def _potential(start: Tensor, points: Tensor) -> Tensor:
    """Validate the potentials to start from and return them as [B, m]."""
    if start.shape != points.shape[:-1] or start.dtype != points.dtype or not torch.isfinite(start).all():
        raise UsageError(
            "start must be the g of an earlier run on the same number of points: "
            f"{list(points.shape[:-1])} finite potentials, {points.dtype}; found {list(start.shape)}, {start.dtype}"
        )
    return start.detach().reshape(-1, start.shape[-1])
