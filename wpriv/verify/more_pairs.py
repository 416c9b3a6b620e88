"""Pairs of further kinds of step: groups of records, replaced records and largest batches; section "Further pairs"."""

from __future__ import annotations

import math
from fractions import Fraction

from flint import arb

from wpriv.errors import Unsupported
from wpriv.verify.pairs import ONE, ZERO, Masses, Pair, ball, base_pair, mixed_log, normal_tail, poisson

MAX_GROUP, MAX_BATCH = 100, 10**6


def of_records(mech: str, number: dict[str, Fraction], count: int) -> dict[str, Fraction]:
    """The parameters where ``count`` records differ.

    Raises:
        Unsupported: no proof is known.
    """
    if mech == "randomized-response":
        if number["delta0"] and count > 1:
            raise Unsupported("the verifier has no proof for groups of records and randomized response with delta0")
        return {**number, "eps0": number["eps0"] * count}
    return {**number, "sensitivity": number["sensitivity"] * count}


def replaced_gauss(mu: arb, rate: arb) -> Pair:
    """(1-q) N(0, 1) + q N(mu, 1) against (1-q) N(0, 1) + q N(-mu, 1), with the loss l(x) increasing.

    Its inverse is mu x = l/2 + arsinh((1-q)/q e^(mu^2/2) sinh(l/2)).
    """
    keep = 1 - rate

    def tails(loss: arb | None) -> Masses:
        if loss is None:
            return ONE, ONE
        x = (loss / 2 + (keep / rate * (mu * mu / 2).exp() * (loss / 2).sinh()).asinh()) / mu
        near = keep * normal_tail(x)
        return near + rate * normal_tail(x - mu), near + rate * normal_tail(x + mu)

    def reach(room: float) -> tuple[float, float]:
        m = float(mu)
        far = m * (math.sqrt(2 * room) + m)
        high = mixed_log(float(rate), far - m * m / 2) - mixed_log(float(rate), -far - m * m / 2)
        return -high, high

    return Pair(tails=tails, reach=reach)


def gauss_group(mu: arb, rate: arb, count: int) -> Pair:
    """The mixture of N(j mu, 1), j binomial with ``count`` trials, against N(0, 1)."""
    weights = [math.comb(count, j) * rate**j * (1 - rate) ** (count - j) for j in range(count + 1)]
    floats = [(j, math.log(float(w)) - (j * float(mu)) ** 2 / 2) for j, w in enumerate(weights) if float(w) > 0]

    last = [0.0]  # Newton's method starts at the last root

    def sums(x: arb) -> arb:
        return sum((w * (j * mu * x - (j * mu) ** 2 / 2).exp() for j, w in enumerate(weights)), ZERO)

    def log_sum(x: float) -> tuple[float, float]:
        logs = [(j, log + j * float(mu) * x) for j, log in floats if j]
        peak = max(log for _, log in logs)
        terms = [(j, math.exp(log - peak)) for j, log in logs]
        total = math.fsum(term for _, term in terms)
        return peak + math.log(total), float(mu) * math.fsum(j * term for j, term in terms) / total

    def root(rest: arb) -> arb:
        """The x at which the sum without its first term is ``rest``: Newton's method, then an enclosure."""
        goal = float(rest.log())
        for _ in range(60):
            value, slope = log_sum(last[0])
            last[0] -= (value - goal) / slope
            if abs(value - goal) < 1e-13 * (1 + abs(goal)):
                break
        x, slope = arb(last[0]), log_sum(last[0])[1]
        for _ in range(6):
            x = (x - ((sums(x) - weights[0]) / rest - 1) / slope).mid()
        for radius in (arb(2) ** -bits for bits in (80, 60, 40, 20)):
            if sums(x - radius) - weights[0] < rest < sums(x + radius) - weights[0]:
                return (x - radius).union(x + radius)
        return arb("nan")

    def tails(loss: arb | None) -> Masses:
        rest = -ONE if loss is None else loss.exp() - weights[0]
        if not rest > 0:
            return ONE, ONE
        x = root(rest)
        return sum((w * normal_tail(x - j * mu) for j, w in enumerate(weights)), ZERO), normal_tail(x)

    def reach(room: float) -> tuple[float, float]:
        far = math.sqrt(2 * room)
        high = max(log + j * float(mu) * (far + count * float(mu)) for j, log in floats) + math.log(count + 1)
        value, least = log_sum(-far)[0], float(weights[0])
        return math.log(least + math.exp(min(value, 0.0))), high

    return Pair(tails=tails, reach=reach, symmetric=False)


def truncated_poisson(mech: str, number: dict[str, Fraction], rate: Fraction, batch: int, records: int) -> Pair:
    """With a coin that shows whether a batch may be cut, from above; at a lower rate, from below."""
    one = base_pair(mech, number)
    if batch >= records:
        return poisson(one, ball(rate))
    if batch > MAX_BATCH:
        raise Unsupported(f"the verifier has no proof for a largest batch above {MAX_BATCH}; found {batch}")
    two, q = base_pair(mech, of_records(mech, number, 2)), ball(rate)
    full, beyond = binomial_tail(records - 1, rate, batch), binomial_tail(records, rate, batch + 1)
    most = alternatives(poisson(one, q), poisson(two, q), full)
    least = poisson(one, q * (1 - full) + arb(batch) / records * beyond)
    return Pair(most.atoms, most.infinite, most.missing, most.cut, most.tails, most.reach, symmetric=False, lower=least)


def alternatives(usual: Pair, other: Pair, chance: arb) -> Pair:
    """The pair that reveals which of two was used; ``other`` is with this probability."""
    rest = 1 - chance
    atoms = [(loss, rest * p, rest * q) for loss, p, q in usual.atoms]
    atoms += [(loss, chance * p, chance * q) for loss, p, q in other.atoms]

    def tails(loss: arb | None) -> Masses:
        assert usual.tails is not None
        assert other.tails is not None
        (p, q), (p1, q1) = usual.tails(loss), other.tails(loss)
        return rest * p + chance * p1, rest * q + chance * q1

    def reach(room: float) -> tuple[float, float]:
        needed = max(1.0, room + math.log(max(float(chance), 1e-300)))
        (low, high), (low1, high1) = usual.reach(room), other.reach(needed)
        return min(low, low1), max(high, high1)

    infinite = rest * usual.infinite + chance * other.infinite
    missing = rest * usual.missing + chance * other.missing
    cut = rest * usual.cut + chance * other.cut
    return Pair(tuple(atoms), infinite, missing, cut, usual.tails and tails, reach, symmetric=False)


def binomial_tail(trials: int, rate: Fraction, least: int) -> arb:
    """P(K >= least) of a binomial variable."""
    if rate == 1 or least > trials:
        return ONE if least <= trials else ZERO
    odds = ball(rate / (1 - rate))
    mass, below = (1 - ball(rate)) ** trials, ZERO
    for k in range(least):
        below += mass
        mass *= odds * (trials - k) / (k + 1)
    return (1 - below).max(ZERO)
