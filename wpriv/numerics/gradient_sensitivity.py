"""Sensitivity of a clipped Wasserstein gradient to one record, for accounting and for training.

The setting is that of Rodriguez-Vitores, Lalanne, Loubes (2025), "Wasserstein gradients": scores g(x_i) of n records
and h(z_j) of m records, clipped to norm M (``bound``); their gradients, clipped to norm L1 and L2 (``lipschitz_x``,
``lipschitz_z``; the spectral norm of the Jacobian where scores are vectors); and the gradient of W_2^2, or of its
sliced form, as an integral or over drawn directions. In training n and m are the sizes of the BATCH. Tied clipped
scores must share their
weights: if ties are broken by position, no bound here holds.
"""

from __future__ import annotations

from wpriv.errors import UsageError

FORMULAS = ("tight", "paper")


def wasserstein_gradient(
    bound: float,
    lipschitz_x: float,
    lipschitz_z: float,
    size_x: float,
    size_z: float | None = None,
    *,
    formula: str = "tight",
) -> float:
    """Compute the l2 sensitivity of the clipped gradient of W_2^2 when one record is replaced.

    ``paper`` is 4M (3 L1 + L2)/n. It bounds three shifts of the same rank one by one; kept together their sum is convex
    in the scores before and after and in the quantiles of the other sample that their ranks meet, so its maximum is at
    a vertex: ``tight`` is (4M/n) max(2 L1, L1 + L2), which both ends of the maximum attain. A record of Z likewise,
    with the roles exchanged.

    Args:
        bound: M > 0, the clipping norm of the scores.
        lipschitz_x, lipschitz_z: L1, L2 >= 0, the clipping norms of their gradients.
        size_x: n, records of X in the batch, one of which is replaced.
        size_z: m if Z is private as well, else None.
        formula: ``tight`` or ``paper``.
    Returns:
        A bound in units of score x gradient, attained by ``tight``; the larger of the two if both samples are private.
    Raises:
        UsageError: another formula, or a size below 1.
    Source:
        Rodriguez-Vitores, Lalanne, Loubes (2025), Theorems 4.1 and A.1; the constant of ``tight`` is wpriv's.
    """
    if formula not in FORMULAS:
        raise UsageError(f"formula must be one of {', '.join(FORMULAS)}; found {formula!r}")
    if not size_x >= 1 or not (size_z is None or size_z >= 1):
        raise UsageError(f"size_x and size_z must be at least 1; found {size_x} and {size_z}")
    over_x = _constant(lipschitz_x, lipschitz_z, formula) / size_x
    over_z = 0.0 if size_z is None else _constant(lipschitz_z, lipschitz_x, formula) / size_z
    return 4 * bound * max(over_x, over_z)


def _constant(replaced: float, other: float, formula: str) -> float:
    """The factor of 4M/n, from the gradient norms of the sample with the replaced record and of the other one."""
    return 3 * replaced + other if formula == "paper" else max(2 * replaced, replaced + other)


def penalised_gradient(alpha: float, clip: float, size: float, penalty: float, labels: int = 1) -> float:
    """Compute the l2 sensitivity of (1-alpha) mean gradient + alpha (Wasserstein gradient), averaged over labels.

    A replaced record moves the mean of ``size`` gradients of norm at most C by 2C/n. It takes part in the penalty of
    its own label only, one of ``labels`` that are averaged. With alpha = 1 and one label it is the penalty alone.

    Args:
        alpha: weight of the penalty in [0, 1].
        clip: C >= 0, the clipping norm of the per-example gradients.
        size: records in the batch, of all groups.
        penalty: ``wasserstein_gradient`` of the two groups, of the smallest ones where there are several labels.
        labels: R >= 1.
    Raises:
        UsageError: no records, or a weight outside [0, 1].
    Source:
        Rodriguez-Vitores, Lalanne, Loubes (2025), Theorem 6.1: (7), statistical parity, R = 1; (8), equality of odds.
    """
    if not (0 <= alpha <= 1 and size >= 1 and labels >= 1):
        raise UsageError(
            f"alpha must lie in [0, 1], size and labels must be at least 1; found {alpha:g}, {size} and {labels}"
        )
    return (1 - alpha) * 2 * clip / size + alpha * penalty / labels
