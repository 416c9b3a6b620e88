"""The profile of a composition by inverting its transform M(s) = E_P e^(s L), with every error bounded by balls.

The docstrings name the sections of docs/theory/verifier.md.
"""

from __future__ import annotations

import itertools
import math
from functools import lru_cache

from flint import acb, acb_mat, arb, ctx

from wpriv.verify import choices
from wpriv.verify.pairs import ONE, ZERO, Kind, Pair, Unprovable, around, normal_tail, product

RHO = 4  # sum of the semi-axes of a Bernstein ellipse, in half lengths of its panel
ORDER = 16  # number of uniform variables in the smoothing
MAX_NODES, MAX_PRODUCTS = 10**5, 4 * 10**7


@lru_cache(maxsize=4)
def legendre(count: int, bits: int) -> list[Pair]:
    return [arb.legendre_p_root(count, k, weight=True) for k in range(count)]


def panels(kind: Kind, sign: int, c: arb, top: arb, goal: int) -> tuple[list[Pair], arb]:
    """Panels of x for Gauss quadrature of one part at s = c + it, |t| <= top, and its error; section "Quadrature"."""
    mu, z, room = kind.base.mu, c + 1 if sign > 0 else -c, goal * math.log(2)
    low, high, error = (ZERO if kind.start is None else ONE / 2), ONE, ZERO
    if kind.base.name == "gauss":
        lift = ZERO if sign > 0 else -c * (1 - kind.q).log()
        growth = ((z * z - z) * mu * mu / 2) if sign > 0 else ZERO
        high = (z * mu).max(mu / 2).mid() + 1 + math.ceil(math.sqrt(2 * (room + float(growth))))
        low = mu / 2 if kind.start is not None else arb(-math.ceil(math.sqrt(2 * (room + float(lift)))))
        error += normal_tail(high) + (growth.exp() * normal_tail(high - z * mu) if sign > 0 else ZERO)
        error += normal_tail(-low) * lift.exp() if kind.start is None else ZERO
    rows, todo = [], [(low, high, 0)]
    while todo:
        a, b, depth = todo.pop()
        half, long, short = (b - a) / 2, (RHO + 1 / arb(RHO)) / 2, (RHO - 1 / arb(RHO)) / 2
        box, bound = acb((a + b) / 2 + around(half * long), around(half * short)), arb.pos_inf()
        r = kind.ratio(box)
        if r.real > 0:
            log = r.log()
            bound = kind.base.density(box).abs_upper() * (z * log.real + top * log.imag.abs_upper()).exp()
            bound = (8 * half * bound * arb(RHO) ** (1 - 2 * points(goal)) / (RHO - 1)).upper()
        if bound < arb(2) ** -goal:
            rows.append((a, b))
            error += bound
        elif depth > 24:
            raise Unprovable("an integrand varies too fast")
        else:
            todo += [((a + b) / 2, b, depth + 1), (a, (a + b) / 2, depth + 1)]
    return rows, error


def points(goal: int) -> int:
    """The number of quadrature points of a panel."""
    return goal // 4 + 8


def discretised(kind: Kind, c: arb, top: arb, goal: int) -> tuple[list[Pair], arb]:
    """Losses and masses with M(s) = sum of mass e^(s loss) up to the error that is returned, |Im s| <= top."""
    rows, error = list(kind.atoms), ZERO
    for sign in kind.continuous_signs:
        pieces, bound = panels(kind, sign, c, top, goal)
        error += bound
        for a, b in pieces:
            for root, weight in legendre(points(goal), ctx.prec):
                x = (a + b) / 2 + (b - a) / 2 * root
                r, mass = kind.ratio(x), weight * (b - a) / 2 * kind.base.density(x)
                rows.append((sign * r.log(), mass * r if sign > 0 else mass))
    return rows, error


def on_line(kind: Kind, c: arb, h: arb, count: int, goal: int) -> list[acb]:
    """M(c + i h k) for k below ``count``."""
    if kind.plain_gauss:
        line = [acb(c, h * k) for k in range(count)]
        return [(kind.base.mu**2 * s * (s + 1) / 2).exp() for s in line]
    rows, error = discretised(kind, c, h * count, goal)
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


def layers(kind: Kind, c: arb, total: arb) -> list[Pair]:
    """Uniform distributions within the loss tilted by c: their masses and widths; section "Decay"."""
    found: list[Pair] = []
    for sign in kind.continuous_signs:
        z, cells = (c + 1 if sign > 0 else -c), []
        for a, b in panels(kind, sign, c, ZERO, 40)[0]:
            edges = [a + (b - a) * i / 4 for i in range(5)]
            for left, right in itertools.pairwise(edges):
                box = left.union(right)
                slope = kind.q * kind.base.line[0] * (kind.base.line[0] * box + kind.base.line[1]).exp()
                level = kind.base.density(box) * ((z + 1) * kind.ratio(box).log()).exp() / (slope * total)
                width = (kind.ratio(right) / kind.ratio(left)).log().lower()
                cells.append((level.lower().max(ZERO), width.max(ZERO)))
        stack: list[Pair] = []  # rising levels with the widths of the runs that reach them
        for level, width in [*cells, (ZERO, ZERO)]:
            run = ZERO
            while stack and stack[-1][0] >= level:
                peak, more = stack.pop()
                run += more
                found.append(((peak - (stack[-1][0].max(level) if stack else level)) * run, run))
            stack.append((level, run + width))
    return [(mass.lower(), width.lower()) for mass, width in found if mass > 0]


class Inversion:
    """The profile of a composition by the trapezoidal rule along Re s = c; sections "Inversion" and "Smoothing"."""

    def __init__(self, kinds: tuple[Kind, ...], x: arb, smoothing: float):
        choice = choices.line(kinds, float(x))
        self.kinds, self.c, self.other = kinds, arb(choice.c), arb(choice.other)
        self.h, self.width = 2 * arb.pi() / arb(choice.period), arb(smoothing / choice.c)
        loss_of_bits = max(0.0, choice.log_scale - choice.log_delta) / math.log(2)
        goal = 70 + sum(kind.n for kind in kinds).bit_length() + int(loss_of_bits)
        masses = [self.at_real(kind, self.c, goal) for kind in kinds]
        self.layers = [layers(kind, self.c, mass) for kind, mass in zip(kinds, masses, strict=True)]
        self.moment = product(kinds, masses)
        self.other_moment = product(kinds, [self.at_real(kind, self.other, goal) for kind in kinds])
        count, share = 16, math.exp(max(choice.log_delta - choice.log_scale - 26, -700))
        while not float(self.rest(count)) < share:
            count = count * 5 // 4
            if count * len(kinds) > MAX_NODES:
                raise Unprovable("the transform decreases too slowly")
        rows = [on_line(kind, self.c, self.h, count, goal) for kind in kinds]
        self.values = [product(kinds, values) for values in zip(*rows, strict=True)]

    @staticmethod
    def at_real(kind: Kind, c: arb, goal: int) -> arb:
        """M(c)."""
        return on_line(kind, c, ONE, 1, goal)[0].real

    def rest(self, count: int) -> arb:
        """Bound on the sum beyond ``count`` nodes, over E e^(c (L - x)); section "Decay"."""
        t, bound = self.h * (count - 1), ONE
        for kind, rows in zip(self.kinds, self.layers, strict=True):
            if kind.plain_gauss:
                bound *= (-kind.n * (kind.base.mu * t) ** 2 / 2).exp()
            else:
                missing = sum((mass * (1 - envelope(t * width / 2)) for mass, width in rows), ZERO)
                bound *= (1 - missing).min(ONE) ** kind.n
        if self.width > 0:
            edge = (1 + 2 * ORDER * self.width) ** ORDER / (1 - ORDER * self.width / 2) ** self.c
            bound *= (2 / (self.width * t)) ** ORDER * edge / (ORDER + 1)
        return (bound / (arb.pi() * t)).upper()

    def spread(self, x: arb, start: arb, width: arb) -> Pair:
        """Bounds on the mean of delta(x + ln V), V = start + width (sum of uniform variables)."""
        m = ORDER if width > 0 else 0
        logs = [(start + j * width).log() for j in range(m + 1)]
        signs = [(-1) ** (m - j) * math.comb(m, j) for j in range(m + 1)]
        total = ZERO
        for k, value in enumerate(self.values):
            s = acb(self.c, self.h * k)
            term = value * (-s * x).exp() / (s * (s + 1))
            if m:
                term *= sum((sign * ((m - s) * log).exp() for sign, log in zip(signs, logs, strict=True)), acb(0))
                term /= math.prod((j - s for j in range(1, m + 1)), start=width**m)
            total += term.real if k == 0 else 2 * term.real
        total *= self.h / (2 * arb.pi())
        rest = self.rest(len(self.values)) * self.moment * (-self.c * x).exp()
        period, more = 2 * arb.pi() / self.h, self.other - self.c
        below, above = (-self.c * period).exp(), (-more * period).exp()
        alias = below / (1 - below) + above / (1 - above) * self.other_moment * (-self.other * (x + start.log())).exp()
        return (total - rest - alias).lower(), (total + rest).upper()

    def bound(self, x: arb, upper: bool) -> arb:
        """A bound on delta(x)."""
        lost, w = 1 - product(self.kinds, [1 - kind.lost() for kind in self.kinds]), self.width
        if upper or not w > 0:
            value = self.spread(x, 1 - ORDER * w / 2, w)[upper]
        else:
            value = 2 * self.spread(x, ONE, w)[0] - self.spread(x, ONE, 2 * w)[1]
        return value + arb(lost)


def envelope(y: arb) -> arb:
    """A decreasing bound on |sin y / y|."""
    return (-y * y / 6).exp().max(1 / arb.pi()) if y <= arb.pi() else 1 / y
