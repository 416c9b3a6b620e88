"""The profile of a composition by inverting its transform M(s) = E_P e^(s L), with every error bounded by balls.

It has narrower bounds than the lattice where there are many steps. The docstrings name the sections of
docs/theory/verifier.md. Only ``sketch``, ``exponent`` and ``line`` use floats: they choose a line, and every choice
of one gives a valid bound.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from flint import acb, acb_mat, arb, ctx

from wpriv.verify.pairs import ONE, ZERO, Pair, Unprovable, normal_tail

Row = tuple[arb, arb]
RHO = 4  # sum of the semi-axes of a Bernstein ellipse, in half lengths of its panel
MAX_NODES, MAX_PRODUCTS, MAX_PANELS = 10**5, 4 * 10**7, 1000


@dataclass(frozen=True, eq=False)
class Kind:
    """``n`` steps of one pair: atoms with P-masses, and parts of P-mass B r (sign +1) or B, with the loss sign ln r.

    B is a density in x, and r = 1 - q + q e^U the ratio after sampling at rate q, with U = slope x + shift.
    Part + has no x above ``top``; the mass that it would have there is a part of ``infinite``.
    """

    n: int
    atoms: list[Row]
    infinite: arb
    signs: tuple[int, ...] = ()
    name: str = ""
    mu: arb = ZERO
    q: arb = ONE
    top: float = math.inf

    @classmethod
    def of(cls, pair: Pair, n: int, small: float) -> Kind:
        """The kind of a pair, without losses of sampled Gaussian noise above a number, whose mass is about ``small``.

        Their moments would be infinite or far above those of all others.
        """
        if pair.tails is not None and pair.form is None:
            raise Unprovable("there is no transform of this pair")
        name, mu, q, signs = pair.form or ("", ZERO, ONE, ())
        top, infinite = math.inf, pair.infinite + pair.cut
        if name == "gauss" and q < 1 and 1 in signs:
            log, log_q = -math.log(small), math.log(float(q))
            top = max(math.sqrt(2 * log), float(mu) * 1.5, float(mu) + math.sqrt(2 * max(log + log_q, 0)))
            infinite += ZERO.union(q * normal_tail(top - mu) + normal_tail(arb(top)))
        return cls(n, [(loss, p) for loss, p, _ in pair.atoms], infinite, signs, name, mu, q, top)

    @property
    def fixed(self) -> bool:
        """Both parts have outcomes with U > 0 only."""
        return len(self.signs) == 2

    @property
    def is_gauss(self) -> bool:
        """Tell whether the process is Gaussian noise without sampling."""
        return self.name == "gauss" and self.q == 1

    @property
    def line(self) -> Row:
        return (self.mu, -self.mu * self.mu / 2) if self.name == "gauss" else (2 * self.mu, -self.mu)

    def density(self, x: Any) -> Any:
        """Density of x under B: standard normal on the line, or half of an exponential on (0, 1)."""
        if self.name == "gauss":
            return (-x * x / 2).exp() / (2 * arb.pi()).sqrt()
        return self.mu / 2 * (-self.mu * x).exp()

    def ratio(self, x: Any) -> Any:
        """The ratio r at x; 1 - q is exactly 0 without sampling."""
        slope, shift = self.line
        return 1 - self.q + self.q * (slope * x + shift).exp()


@lru_cache(maxsize=4)
def legendre(count: int, bits: int) -> list[Row]:
    return [arb.legendre_p_root(count, k, weight=True) for k in range(count)]


def panels(kind: Kind, sign: int, c: arb, top: arb, goal: int, most: float) -> tuple[list[Row], arb]:
    """At most ``most`` panels of x for quadrature of a part at s = c + it, |t| <= top, and its error; "Quadrature"."""
    mu, z, room = kind.mu, c + 1 if sign > 0 else -c, goal * math.log(2)
    low, high, error = (ONE / 2 if kind.fixed else ZERO), ONE, ZERO
    if kind.name == "gauss":
        lift = ZERO if sign > 0 else -c * (1 - kind.q).log()
        growth = ((z * z - z) * mu * mu / 2) if sign > 0 else ZERO
        high = (z * mu).max(mu / 2).mid() + 1 + math.ceil(math.sqrt(2 * (room + float(growth))))
        low = mu / 2 if kind.fixed else arb(-math.ceil(math.sqrt(2 * (room + float(lift)))))
        if sign > 0 and high >= kind.top:
            high = arb(kind.top)
        else:
            error += normal_tail(high) + (growth.exp() * normal_tail(high - z * mu) if sign > 0 else ZERO)
        error += ZERO if kind.fixed else normal_tail(-low) * lift.exp()
    rows, todo = [], [(low, high, 0)]
    while todo:
        a, b, depth = todo.pop()
        half, long, short = (b - a) / 2, (RHO + 1 / arb(RHO)) / 2, (RHO - 1 / arb(RHO)) / 2
        box, bound = acb((a + b) / 2 + around(half * long), around(half * short)), arb.pos_inf()
        r = kind.ratio(box)
        if r.real > 0:
            log = r.log()
            bound = kind.density(box).abs_upper() * (z * log.real + top * log.imag.abs_upper()).exp()
            bound = (8 * half * bound * arb(RHO) ** (1 - 2 * points(goal)) / (RHO - 1)).upper()
        if bound < arb(2) ** -goal:
            rows.append((a, b))
            error += bound
        elif depth > 24 or len(rows) + len(todo) > most:
            raise Unprovable("an integrand varies too fast")
        else:
            todo += [((a + b) / 2, b, depth + 1), (a, (a + b) / 2, depth + 1)]
    return rows, error


def points(goal: int) -> int:
    """The number of quadrature points of a panel."""
    return goal // 4 + 8


def discretised(kind: Kind, c: arb, h: arb, count: int, goal: int) -> tuple[list[Row], arb]:
    """Losses and masses with M(s) = sum of mass e^(s loss) up to the error that is returned, |Im s| <= count h."""
    rows, error = list(kind.atoms), ZERO
    for sign in kind.signs:
        pieces, bound = panels(kind, sign, c, h * count, goal, min(MAX_PANELS, MAX_PRODUCTS / (count * points(goal))))
        error += bound
        for a, b in pieces:
            for root, weight in legendre(points(goal), ctx.prec):
                x = (a + b) / 2 + (b - a) / 2 * root
                r, mass = kind.ratio(x), weight * (b - a) / 2 * kind.density(x)
                rows.append((sign * r.log(), mass * r if sign > 0 else mass))
    return rows, error


def on_line(kind: Kind, c: arb, h: arb, count: int, goal: int) -> list[acb]:
    """M(c + i h k) for k below ``count``."""
    if kind.is_gauss:
        line = [acb(c, h * k) for k in range(count)]
        return [(kind.mu**2 * s * (s + 1) / 2).exp() for s in line]
    rows, error = discretised(kind, c, h, count, goal)
    if len(rows) * count > MAX_PRODUCTS:
        raise Unprovable("the transform has too many terms")
    inner = math.isqrt(count) + 1  # k = j + inner m, a product of matrices
    turns, leaps = ([acb(0, h * factor * loss).exp() for loss, _ in rows] for factor in (1, inner))
    left, right = [[acb(mass * (c * loss).exp()) for loss, mass in rows]], [[acb(1)] * len(rows)]
    while len(left) < inner:
        left.append([x * y for x, y in zip(left[-1], turns, strict=True)])
    while len(right) * inner < count:
        right.append([x * y for x, y in zip(right[-1], leaps, strict=True)])
    table = acb_mat(right) * acb_mat(left).transpose()
    rounding = acb(around(error), around(error))
    return [value + rounding for value in table.entries()[:count]]


def layers(kind: Kind, c: arb, total: arb) -> list[Row]:
    """Uniform distributions within the loss tilted by c: their masses and widths; section "Decay"."""
    distributions: list[Row] = []
    for sign in kind.signs:
        z, cells = (c + 1 if sign > 0 else -c), []
        for a, b in panels(kind, sign, c, ZERO, 40, MAX_PANELS)[0]:
            edges = [a + (b - a) * i / 4 for i in range(5)]
            for left, right in itertools.pairwise(edges):
                box = left.union(right)
                slope = kind.q * kind.line[0] * (kind.line[0] * box + kind.line[1]).exp()
                level = kind.density(box) * ((z + 1) * kind.ratio(box).log()).exp() / (slope * total)
                width = (kind.ratio(right) / kind.ratio(left)).log().lower()
                cells.append((level.lower().max(ZERO), width.max(ZERO)))
        stack: list[Row] = []  # rising levels with the widths of the runs that reach them
        for level, width in [*cells, (ZERO, ZERO)]:
            run = ZERO
            while stack and stack[-1][0] >= level:
                peak, more = stack.pop()
                run += more
                distributions.append(((peak - (stack[-1][0].max(level) if stack else level)) * run, run))
            stack.append((level, run + width))
    return [(mass.lower(), width.lower()) for mass, width in distributions if mass > 0]


class Inversion:
    """The profile of a composition by the trapezoidal rule along Re s = c; section "Inversion"."""

    def __init__(self, kinds: list[Kind], x: arb, delta: float):
        choice = line(kinds, float(x), math.log(delta))
        self.kinds, self.c, self.other = kinds, arb(choice[0]), arb(choice[1])
        period, log_delta, log_scale = choice[2:]
        self.h = 2 * arb.pi() / arb(period)
        loss_of_bits = max(0.0, log_scale - log_delta) / math.log(2)
        goal = 70 + sum(kind.n for kind in kinds).bit_length() + int(loss_of_bits)
        masses = [on_line(kind, self.c, ONE, 1, 50)[0].real for kind in kinds]
        self.layers = [layers(kind, self.c, mass) for kind, mass in zip(kinds, masses, strict=True)]
        self.moment = product(kinds, masses)
        self.other_moment = product(kinds, [on_line(kind, self.other, ONE, 1, 50)[0].real for kind in kinds])
        count, share = 16, math.exp(max(log_delta - log_scale - 26, -700))
        while not float(self.rest(count)) < share:
            count = count * 5 // 4
            if count * len(kinds) > MAX_NODES:
                raise Unprovable("the transform decreases too slowly")
        rows = [on_line(kind, self.c, self.h, count, goal) for kind in kinds]
        self.values = [product(kinds, values) for values in zip(*rows, strict=True)]

    def rest(self, count: int) -> arb:
        """Bound on the sum beyond ``count`` nodes, over E e^(c (L - x)); section "Decay"."""
        t, bound = self.h * (count - 1), ONE
        for kind, rows in zip(self.kinds, self.layers, strict=True):
            if kind.is_gauss:
                bound *= (-kind.n * (kind.mu * t) ** 2 / 2).exp()
            else:
                missing = sum((mass * (1 - envelope(t * width / 2)) for mass, width in rows), ZERO)
                bound *= (1 - missing).min(ONE) ** kind.n
        return (bound / (arb.pi() * t)).upper()

    def bound(self, x: arb, upper: bool) -> arb:
        """A bound on delta(x)."""
        total = ZERO
        for k, value in enumerate(self.values):
            s = acb(self.c, self.h * k)
            term = (value * (-s * x).exp() / (s * (s + 1))).real
            total += term if k == 0 else 2 * term
        total *= self.h / (2 * arb.pi())
        rest = self.rest(len(self.values)) * self.moment * (-self.c * x).exp()
        period, more = 2 * arb.pi() / self.h, self.other - self.c
        below, above = (-self.c * period).exp(), (-more * period).exp()
        alias = below / (1 - below) + above / (1 - above) * self.other_moment * (-self.other * x).exp()
        infinite: arb = -sum((kind.n * (-kind.infinite).log1p() for kind in self.kinds), ZERO).expm1()
        bound: arb = (total + rest if upper else total - rest - alias) + infinite
        return bound


def product(kinds: Iterable[Kind], values: Iterable[Any]) -> Any:
    return math.prod(value**kind.n for kind, value in zip(kinds, values, strict=True))


def around(radius: arb) -> arb:
    """The ball of all numbers from minus ``radius`` to ``radius``."""
    return (-radius.abs_upper()).union(radius.abs_upper())


def envelope(y: arb) -> arb:
    """A decreasing bound on |sin y / y|."""
    return (-y * y / 6).exp().max(1 / arb.pi()) if y <= arb.pi() else 1 / y


def sketch(kind: Kind, c: float, points: int) -> tuple[float, float, float]:
    """ln M(c) of one step, with mean and variance of its loss tilted by c."""
    mu, q = float(kind.mu), float(kind.q)
    if kind.is_gauss:
        return mu * mu * c * (c + 1) / 2, mu * mu * (c + 0.5), mu * mu
    rows = [(float(loss), math.log(max(float(mass), 1e-300))) for loss, mass in kind.atoms]
    for sign in kind.signs:
        slope, shift = (float(value) for value in kind.line)
        low, high = (-9.0, 10.0 + (c + 1) * mu) if kind.name == "gauss" else (0.0, 1.0)
        low, high = -shift / slope if kind.fixed else low, min(high, kind.top) if sign > 0 else high
        cell = math.log((high - low) / points)
        for i in range(points):
            x = low + (i + 0.5) * (high - low) / points
            u = slope * x + shift
            log = u + math.log(q) if u > 600 else math.log1p(q * math.expm1(u)) if q < 1 else u
            mass = -x * x / 2 - math.log(2 * math.pi) / 2 if kind.name == "gauss" else math.log(mu / 2) - mu * x
            rows.append((sign * log, mass + cell + (log if sign > 0 else 0)))
    peak = max(c * loss + mass for loss, mass in rows)
    weights = [math.exp(c * loss + mass - peak) for loss, mass in rows]
    total = math.fsum(weights)
    mean = math.fsum(w * loss for w, (loss, _) in zip(weights, rows, strict=True)) / total
    square = math.fsum(w * (loss - mean) ** 2 for w, (loss, _) in zip(weights, rows, strict=True)) / total
    return math.log(total) + peak, mean, square


def exponent(kinds: list[Kind], x: float, c: float) -> tuple[float, float, float]:
    """ln E e^(c (L - x)) of a composition, the slope of ln of the integrand at c, and the variance."""
    values = [[kind.n * value for value in sketch(kind, c, 160 if len(kinds) < 10 else 60)] for kind in kinds]
    log, mean, square = (math.fsum(column) for column in zip(*values, strict=True))
    return log - c * x, mean - x - 1 / c - 1 / (c + 1), square


def line(kinds: list[Kind], x: float, log_delta: float) -> tuple[float, ...]:
    """c near the saddle point, a second tilt, the least period at which the aliases are small, and ln of two sizes."""
    low, high = 1e-4, 1e-3
    while exponent(kinds, x, high)[1] < 0 and high < 1e8:
        low, high = high, 2 * high
    for _ in range(16):
        middle = math.sqrt(low * high)
        low, high = (middle, high) if exponent(kinds, x, middle)[1] < 0 else (low, middle)
    log, _, square = exponent(kinds, x, high)
    estimate = log - math.log(high * (high + 1)) - math.log(2 * math.pi * square + 1e-300) / 2
    delta = min(estimate, log_delta)
    logs = {f: exponent(kinds, x, f * high)[0] for f in (0.5, 0.7, 0.85, 1.0, 1.03, 1.1, 1.2, 1.4, 1.8, 2.5, 4.0)}
    lines = []
    for f in (0.5, 0.7, 0.85, 1.0):
        for g in (g for g in logs if g > max(f, 0.99)):
            period = max((25 - delta) / (f * high), (logs[g] - delta + 25) / ((g - f) * high))
            lines.append((f * high, g * high, period, delta, logs[f]))
    return min(lines, key=lambda choice: choice[2] * (1 + 0.3 * (1 - choice[0] / high)))
