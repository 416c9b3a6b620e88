"""Zero-concentrated differential privacy: xi and rho add up over the steps and turn into (eps, delta) in closed form.

rho is known here for Gaussian and Laplace noise, continuous or discrete, for the exponential mechanism, for pure DP
(every step whose loss is bounded) and for a given zCDP guarantee. It must not be confused with ``rdp``, which uses the
divergence of every order; zCDP bounds all of them by one line, xi plus rho times the order.
"""

from __future__ import annotations

import math

from wpriv.core.guarantee import Curve
from wpriv.core.loss_pair import LossPair
from wpriv.core.process import Process, Step
from wpriv.errors import Unsupported
from wpriv.numerics.bracket import Bracket, safe_exp
from wpriv.numerics.conversions import zcdp_to_epsilon, zcdp_to_log_delta

# of a few operations
ROUNDING = 1e-15
NOTION = "approximate-dp"
CLAIM = "upper-bound"
SOURCE = (
    "Bun, Steinke 2016, Propositions 1.3 and 1.6; Canonne, Kamath, Steinke 2020, Theorem 4 (discrete Gaussian); "
    "Harrison, Manurangsi 2025 (pure DP, Laplace, bounded range)"
)
EXPLAIN = """\
eps = xi + rho + 2 sqrt(rho ln(1/delta)), rho = sum of sensitivity^2/(2 sigma^2) for (discrete) Gaussian noise, of
eps_i tanh(eps_i/2) for pure eps_i-DP, of eps_i - 1 + e^-eps_i for Laplace noise (the mean loss, as for discrete Laplace
noise), of x - 1 - ln x, x = eps_i/(1 - e^-eps_i), for exponential mechanisms, and of given rho_i; xi of given xi_i.
A rigorous upper bound, looser than rdp and gdp; subsampled Gaussian steps have no useful finite rho and are refused."""


def account(process: Process, *, tol: float = 1e-3) -> Curve:
    """Account for steps with a known rho and for pure-DP steps; ``tol`` is not used.

    Raises:
        Unsupported: some step has neither a known rho without sampling nor a bounded loss.
    """
    xi, rho = total_line(process)

    def delta(eps: float) -> Bracket:
        return Bracket.above(safe_exp(zcdp_to_log_delta(rho, eps - xi)))

    def epsilon(delta: float) -> Bracket:
        return Bracket.above(xi + zcdp_to_epsilon(rho, math.log(delta)))

    return Curve(process, "zcdp", NOTION, CLAIM, SOURCE, delta, epsilon)


def total_line(process: Process) -> tuple[float, float]:
    """Proven xi and rho of the whole process; raises as ``account``."""
    directions = process.renyi_directions()
    forward, backward = directions[0], directions[-1]
    parts = zip(process.steps, forward, backward, strict=True)
    lines = [(n, *_line(step, pair, other)) for step, (pair, n), (other, _) in parts]
    return math.fsum(n * xi for n, xi, _ in lines), math.fsum(n * rho for n, _, rho in lines)


def _line(step: Step, forward: LossPair, backward: LossPair) -> tuple[float, float]:
    """xi and rho of one release, or of one pass: the smaller of a theorem on its noise and of the eps of pure DP."""
    pairs = (forward, backward)
    by_noise = [line for pair in pairs if (line := pair.zcdp_line()) is not None]
    pure_eps = max(pair.support[1] for pair in pairs)
    is_pure = all(pair.mass_at_plus_infinity == 0 for pair in pairs) and math.isfinite(pure_eps)
    bounds = [(max(xi for xi, _ in by_noise), max(rho for _, rho in by_noise))] if len(by_noise) == len(pairs) else []
    # randomised response dominates every step of pure DP
    bounds += [(0.0, pure_eps * math.tanh(pure_eps / 2) * (1 + ROUNDING))] if is_pure else []
    if bounds:
        return min(bounds)
    raise Unsupported(
        f"zcdp covers (discrete) Gaussian noise without sampling, given zCDP guarantees and steps with a bounded "
        f"loss (pure DP); {step.mechanism.name} with sampling {step.sampling.kind!r} is none of these. Use rdp or pld"
    )
