"""From rows to released numbers: bounded sums, exact noise, and what is said beside each number.

What is printed follows from public parameters and from noisy integers alone.
"""

from __future__ import annotations

import datetime
import math
from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal, localcontext
from fractions import Fraction
from typing import cast

import numpy as np

from wpriv.files.columns import EPOCH, Block
from wpriv.numerics.numbers import rounded, text
from wpriv.releases import bounding
from wpriv.releases.bounding import Contributions
from wpriv.releases.outputs import BinCounts, Column, Mean, Output, Quantile
from wpriv.releases.plan import Plan
from wpriv.releases.rows import Rows
from wpriv.releases.sampling import GAUSS, LAPLACE, LEVEL, Noise, Selection

Json = dict[str, object]
Z = 1.959963984540054  # the .975 quantile of the normal distribution
SELECTED = "shown since its noisy count is above the threshold; near it counts are too large on average"
CLIPPED = "clipped at 0: such counts are too large on average"
SMALL = "the count is too small for an interval"
NO_COUNT = "no mean: the count is too small"
APPROXIMATE = "approximate interval"
# what holds of the interval of a number: of a count or sum by summing probabilities, of a mean by a normal variable; of
# a quantile, whose distance in ranks is bounded
EXACT, BOUND, NORMAL = "exact", "upper-bound", "approximate"


def _plain(decimal: str) -> int | str:
    return decimal if "." in decimal else int(decimal)


def _date(days: str) -> str:
    """The date of a number of days since 1970-01-01."""
    return datetime.date.fromordinal(round(Decimal(days)) + EPOCH).isoformat()


def decimal_text(value: Fraction, digits: int) -> str:
    """A number with some digits behind the point, which are exact where it has no more.

    >>> decimal_text(Fraction(3, 5), 2), decimal_text(Fraction(0), 0)
    ('0.60', '0')
    """
    if not digits:
        return str(round(value))
    scaled = round(value * 10**digits)
    with localcontext() as context:
        context.prec = 1000
        return f"{Decimal(scaled).scaleb(-digits):f}" if scaled else "0." + "0" * digits


def places(step: Fraction) -> int:
    """The digits behind the point that multiples of a step need."""
    digits = 0
    while (step * 10**digits).denominator > 1:
        digits += 1
    return digits


def released(plan: Plan, blocks: Iterable[Block], key: bytes) -> list[Json]:
    """Read the rows of a table and return the noisy numbers of a plan.

    Args:
        blocks: of rows, with the columns ``plan.question.columns()``. key: 32 secret bytes.
    """
    rows = Rows(plan, blocks, key)
    shown = _shown_keys(plan, rows, key) if plan.question.has_unknown_keys else None
    numbers = []
    for place, output in enumerate(plan.question.outputs):
        numbers += _numbers(plan, place, output, rows, key, shown)
    return numbers


def _shown_keys(plan: Plan, rows: Rows, key: bytes) -> dict[int, int]:
    """The noisy counts of persons above the threshold, by the code of their key."""
    place = plan.naming
    kept, cells = rows.of_output(plan.question.outputs[plan.parts[place].output])
    exact = np.array(bounding.sums(kept, cells), np.int64)
    held = np.flatnonzero(exact)
    noise = plan.noise.noises[place]
    assert noise is not None  # a count
    draws = noise.draw(key, place, len(held))
    noisy = {int(code): int(exact[code]) + draw for code, draw in zip(held, draws, strict=True)}
    return {code: count for code, count in noisy.items() if count > plan.noise.threshold}


def _numbers(
    plan: Plan, place: int, output: Output, rows: Rows, key: bytes, shown: dict[int, int] | None
) -> list[Json]:
    """The numbers of one output."""
    question, parts = plan.question, plan.parts_of(place)
    keyed = question.has_keys(output)
    bins = output.bins()
    kept, cells = rows.of_output(output)
    width = len(bins) if isinstance(output, BinCounts) else 1
    names = rows.keys[0] if keyed else (None,)
    some = [code for code in range(len(names)) if not keyed or shown is None or code in shown]
    chosen = [code * width + bin_ for code in some for bin_ in range(width)]
    if isinstance(output, Quantile):
        return _quantiles(plan, output, parts[0], kept, [(names[code], code) for code in some], key)
    if keyed and shown is not None and parts[0] == plan.naming:
        noisy = [[shown[code] for code in some]]
    else:
        noisy = [_noisy(plan, part, kept, cells, chosen, key) for part in parts]
    labels = [(names[code], bin_ if width > 1 or bins != [""] else None) for code in some for bin_ in bins]
    note = SELECTED if keyed and shown is not None else ""
    return [describe(plan, place, label, tuple(values), note) for label, *values in zip(labels, *noisy, strict=True)]


def _noisy(plan: Plan, part: int, kept: Contributions, cells: int, chosen: Sequence[int], key: bytes) -> list[int]:
    about = plan.parts[part]
    of_mean = about.role != "sum" and isinstance(plan.question.outputs[about.output], Mean)
    exact = bounding.counts(kept, cells) if of_mean else bounding.sums(kept, cells)
    noise = plan.noise.noises[part]
    assert noise is not None  # quantiles are drawn elsewhere
    return [exact[cell] + draw for cell, draw in zip(chosen, noise.draw(key, part, len(chosen)), strict=True)]


def _quantiles(
    plan: Plan, output: Quantile, part: int, kept: Contributions, keys: list[tuple[str | None, int]], key: bytes
) -> list[Json]:
    numbers = []
    order = np.argsort(kept.cells, kind="stable")
    cells, values = kept.cells[order], kept.values[order]
    for number, (name, code) in enumerate(keys):
        start, stop = np.searchsorted(cells, [code, code + 1])
        for index, share in enumerate(output.shares()):
            choice = selection(plan, output, part, share)
            stream = (part + 1) * 2**40 + number * len(output.shares()) + index
            point = choice.draw(values[start:stop].tolist(), key, stream)
            numbers.append(describe(plan, plan.parts[part].output, (name, str(float(share))), (point,), ""))
    return numbers


def selection(plan: Plan, output: Quantile, part: int, share: Fraction) -> Selection:
    """How one quantile of an output is drawn."""
    return Selection(
        share, plan.noise.ranges[part], plan.parts[part].sensitivity, output.bounds.least, output.bounds.most
    )


def described_empty(plan: Plan) -> list[Json]:
    """The numbers of a plan without their values, for a dry run; of unknown keys one line stands for each."""
    question, numbers = plan.question, []
    for place, output in enumerate(question.outputs):
        keys: tuple[str | None, ...] = ("(each)",) if question.has_unknown_keys else question.names
        for name in keys if question.has_keys(output) else (None,):
            numbers += [describe(plan, place, (name, bin_ or None), None, "") for bin_ in output.bins()]
    return numbers


def describe(
    plan: Plan, place: int, label: tuple[str | None, str | None], values: tuple[int, ...] | None, note: str
) -> Json:
    """A number with its noise, standard error and interval, as an entry of ``outputs``: numbers are exact, or text.

    Args:
        label: its key and bin. values: noisy integers of the parts of output ``place``; None before the rows are read.
    """
    output, parts = plan.question.outputs[place], plan.parts_of(place)
    noises, step = [plan.noise.noises[part] for part in parts], Fraction(1) if output.grid is None else output.grid.step
    digits, (key, bin_) = places(step), label
    extra: Json = {}
    value: Fraction | None = None
    interval: tuple[str, str] | None = None
    error: float | None = None
    width: str | None = None
    if isinstance(output, Quantile):
        value = None if values is None else values[0] * step
        share = next(each for each in output.shares() if str(float(each)) == bin_)
        ranks = rounded(selection(plan, output, parts[0], share).rank_error(), up=True)
        within = text(ranks, up=True, digits=4)
        extra, note = {"ranks": ranks}, f"within {within} ranks of the best point with probability {LEVEL} or more"
    elif isinstance(output, Mean):
        digits = min(digits + 4, max(4, math.ceil(-math.log10(step))))
        count, total = noises
        assert count is not None  # neither is a quantile
        assert total is not None
        if values is not None:
            extra = {"parts": {"count": values[0], "sum": values[1]}}
            value, interval, note = mean(output, values[0], values[1], count, total, digits, note)
    else:
        (noise,) = noises
        assert noise is not None  # no quantile
        error, half = float(f"{math.sqrt(noise.variance()) * float(step):.6g}"), noise.half_width()
        width = decimal_text(half * step, digits)
        if values is not None:
            low, high = (decimal_text((values[0] + side * half) * step, digits) for side in (-1, 1))
            value, interval = values[0] * step, (low, high)
            if plan.question.nonnegative and not isinstance(output, Column) and value < 0:
                value, note = Fraction(0), CLIPPED
    plain, about = (
        _date if output.grid is not None and output.grid.is_date else _plain,
        [_noise(plan, part) for part in parts],
    )
    return {
        "name": output.name,
        "kind": output.kind,
        "column": output.columns[0] if output.columns else None,
        "key": key,
        **({} if bin_ is None else {"bin": bin_}),
        "value": None if value is None else plain(decimal_text(value, digits)),
        "standard_error": error,
        "half_width": None if width is None else _plain(width),
        "interval": None if interval is None else [plain(end) for end in interval],
        "level": LEVEL,
        "claim": {"mean": NORMAL, "quantile": BOUND}.get(output.kind, EXACT),
        "grid": None if output.grid is None else decimal_text(step, places(step)),
        "noise": about[0] if len(about) == 1 else about,
        **extra,
        "weight": output.weight,
        "note": note,
    }


def _noise(plan: Plan, part: int) -> dict[str, object]:
    noise = plan.noise.noises[part]
    if noise is None:
        return {"mech": "exponential", "eps0": plan.noise.ranges[part], "sensitivity": plan.parts[part].sensitivity}
    name = "sigma" if noise.family == GAUSS else "scale"
    return {"mech": f"discrete-{noise.family}", name: noise.spread, "sensitivity": plan.parts[part].sensitivity}


def errors_of_mean(row: Mapping[str, object], rows: float) -> tuple[float, float]:
    """Half-widths of 95% of a mean of so many rows: of one in the middle of its bounds, and of one at their end.

    Args:
        row: the entry of ``outputs`` of a mean.
    """
    of_count, of_sum = cast(Sequence[dict[str, float]], row["noise"])
    spreads = []
    for about in (of_count, of_sum):
        noise = Noise(GAUSS, about["sigma"]) if "sigma" in about else Noise(LAPLACE, about["scale"])
        spreads.append(math.sqrt(noise.variance()))
    farthest = of_sum["sensitivity"] / of_count["sensitivity"]  # from the middle, in steps
    unit = Z * float(str(row["grid"])) / rows
    return unit * spreads[1], unit * math.hypot(spreads[1], farthest * spreads[0])


def mean(
    output: Mean, count: int, total: int, of_count: Noise, of_total: Noise, digits: int, note: str
) -> tuple[Fraction | None, tuple[str, str] | None, str]:
    """The mean from a noisy count and a noisy sum of differences from the middle, with Fieller's interval and a note.

    The interval is from the least to the largest t with (S - t N)^2 <= 1.96^2 (s_S^2 + t^2 s_N^2) within the bounds
    (Fieller 1954). Where N is small these t are the outside of an interval, or all numbers.
    """
    bounds, step = output.bounds, output.bounds.step
    low, high = bounds.least * step, bounds.most * step
    ends = low, high
    if count + 2 * math.sqrt(of_count.variance()) < 1:
        return None, (decimal_text(low, digits), decimal_text(high, digits)), NO_COUNT
    value = min(max(output.middle * step + Fraction(total, max(count, 1)) * step, low), high)
    a = count**2 - Z**2 * of_count.variance()
    inside = (
        count**2 * of_total.variance()
        + float(total) ** 2 * of_count.variance()
        - Z**2 * (of_count.variance() * of_total.variance())
    )
    if a != 0 and inside >= 0:
        root = Z * math.sqrt(inside)
        first, second = sorted((output.middle + Fraction((total * count + sign * root) / a)) * step for sign in (-1, 1))
        if a > 0:
            ends = min(max(first, low), high), min(max(second, low), high)
        else:
            pieces = [(low, min(first, high)), (max(second, low), high)]
            some = [piece for piece in pieces if piece[0] <= piece[1]] or [ends]
            ends = some[0][0], some[-1][1]
    note = "; ".join(filter(None, (note, SMALL if ends == (low, high) else APPROXIMATE)))
    return value, (decimal_text(ends[0], digits), decimal_text(ends[1], digits)), note
