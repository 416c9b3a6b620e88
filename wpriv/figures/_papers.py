"""Figures of the tables that belong to a paper."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from wpriv.errors import UsageError
from wpriv.figures import _draw, _palette
from wpriv.figures._declared import figure
from wpriv.figures._draw import Row, Rows
from wpriv.numerics.numbers import text

WRONG = 2e-3  # of a chance printed with three digits
VERDICT_COLOURS = {"holds": "#007A5A", "fails": "#D55E00"}
VERDICT_MARKS = {"holds": "o", "fails": "X"}
VERDICT_LABELS = ["holds", "fails: smallest counterexample", "beyond the axis, or no ratio"]
CLAIM_LINE = 0.18  # inches of one claim, by which a table with many claims makes the figure higher
CLAIM_PLOT, CLAIM_LETTER = 2.2, 0.06  # inches of the axes, and of a letter: long names and inputs make the figure wider
NARROW = 5.0  # inches, below which a figure leaves out the inputs
LOW, HIGH = 0.04, 25.0  # ratios beyond these, or not positive, are drawn as arrows at the edge
DASHED = "--"
ERROR_LINES = (
    ("w2", "distance W₂ to the data (root mean square ± 2 standard errors)", -0.5),
    ("excess", "cost above its least (mean)", -1.0),
)
VARIANCE_LINES: dict[str, tuple[str, dict[str, Any]]] = {
    "exact": ("population loss, closed form", {"linewidth": 2.6}),
    "grid": ("population loss, by Sinkhorn", {"marker": "o", "linestyle": "none", "markersize": 6}),
    "sampled": ("mean loss of batches", {"marker": "s", "linewidth": 1.2, "markersize": 4.5}),
}
TAIL_BOUNDS = {
    "bernstein": ("Bernstein", "#CC79A7"),
    "clt": ("central limit", "#D55E00"),
    "quantile": ("true quantile", "#009E73"),
}
WAYS = {
    "printed": ("as printed", "X", "#000000"),
    "program": ("Bernstein, as in the program", "o", _draw.COLOURS[1]),
    "lemma": ("Bernstein, Lemma 2", "s", _draw.COLOURS[4]),
    "clt": ("central limit (no bound)", "^", _draw.COLOURS[3]),
    "certified": ("certified", "D", _draw.COLOURS[0]),
}
PAPER_EPS = 10.0  # of tables that do not state theirs
ROW = 0.55  # inches of one row of marks
TICKS = (0.2, 0.5, 1, 2, 5, 10)
CLOSED_FORM = "closed form"
SLICED_COLOURS = {"SWD": _draw.COLOURS[0], "DP-SWD": _draw.COLOURS[1], CLOSED_FORM: _draw.COLOURS[6]}
BAR_WIDTH = 0.4  # outcomes are whole numbers
GRADIENT_CURVES = (
    ("value", "slope", "$x_i = i/n$", _draw.COLOURS[0]),
    ("value_replaced", "slope_replaced", "one record replaced", _draw.COLOURS[1]),
)


@figure("Delta of approximate and of probabilistic DP as areas between two (truncated) Gaussian densities.")
def adp_pdp(rows: Rows, axes: Any) -> None:
    """Draw the densities of A = noise and B = noise + sensitivity, e^eps A, the ADP area above it and the tail of PDP.

    The rows are those of the accountants pld and pdp at one eps; sigma, sensitivity and bound are read from them.

    Source: Sommer, Meiser, Mohammadi (2019), Figure 4.
    """
    row = rows[0]
    sigma, shift, eps = float(row["sigma"]), float(row["sensitivity"]), float(row["epsilon"])
    bound = float(row.get("bound") or math.inf)
    if not (1e-9 < sigma < 1e9 and 0 < shift < 1e9 and bound > 1e-9 and eps < 100):
        raise UsageError(
            "adp-pdp draws a Gaussian mechanism with moderate parameters; "
            f"found sigma {sigma:g}, sensitivity {shift:g}, bound {bound:g}, eps {eps:g}"
        )
    reach = min(bound, 4.5 * sigma)
    x = np.linspace(-reach - 0.5, shift + reach + 0.5, 4001)
    a, b = _density(x, 0.0, sigma, bound), _density(x, shift, sigma, bound)
    scaled = math.exp(eps) * a
    above = b > scaled
    (line_a,) = axes.plot(x, a, color="#0072B2", linewidth=1.6)
    (line_b,) = axes.plot(x, b, color="#D55E00", linewidth=1.6)
    (line_scaled,) = axes.plot(x, scaled, color="#0072B2", linewidth=1.2, linestyle=":")
    tail = axes.fill_between(x, 0, b, where=above, color="#E69F00", alpha=0.45, linewidth=0)
    hatched = {"facecolor": "none", "edgecolor": "#000000", "hatch": "////"}
    area = axes.fill_between(x, scaled, b, where=above, linewidth=0, **hatched)
    deltas = {r.get("accountant"): r.get("delta") for r in rows}
    labels = [
        "A: the noise",
        "B: the noise, shifted by the sensitivity",
        r"$e^{\varepsilon}A$ (no probability distribution)",
        _with_value(r"probabilistic DP, δ: mass of B where it exceeds $e^{\varepsilon}A$", deltas.get("pdp")),
        _with_value(r"approximate DP, δ: area between B and $e^{\varepsilon}A$", deltas.get("pld")),
    ]
    axes.set_ylim(0, 1.5 * math.exp(eps) * float(a.max()))
    axes.set_xlabel("outcome (units of the sensitivity)" if shift == 1 else "outcome")
    axes.set_ylabel(f"density   (ε = {eps:g})")
    _draw.legend(axes, [line_a, line_b, line_scaled, tail, area], labels)


def _density(x: Any, centre: float, sigma: float, bound: float) -> Any:
    from scipy.special import ndtr

    z = (x - centre) / sigma
    mass = 1 - 2 * ndtr(-bound / sigma)
    return np.where(np.abs(x - centre) <= bound, np.exp(-z * z / 2) / (sigma * math.sqrt(2 * math.pi) * mass), 0.0)


def _with_value(label: str, value: Any) -> str:
    return label if value is None else f"{label} = {text(value, up=True, digits=4)}"


@figure("Printed chances of a successful attack over their eps, beside the formula from which they are said to come.")
def attack_chances(rows: Rows, axes: Any) -> None:
    """Draw ``printed`` over ``eps_printed``, a mark for each ``framework``, and the curve 1 / (1 + e^-eps).

    A printed chance that is off by more than two units of its last digit is joined to the curve and named.

    Source: Yang, Qi, Zhou (2024), Table 2.
    """
    top = 1.08 * max(row["eps_printed"] for row in rows)
    grid = [top * k / 400 for k in range(401)]
    (curve,) = axes.plot(grid, [1 / (1 + math.exp(-eps)) for eps in grid], color="#000000", linewidth=1.2)
    handles, labels = [curve], [r"$1/(1+e^{-\varepsilon})$"]
    for index, framework in enumerate(dict.fromkeys(row["framework"] for row in rows)):
        points = [(row["eps_printed"], row["printed"]) for row in rows if row["framework"] == framework]
        style = {"color": _draw.COLOURS[index], "marker": _draw.MARKS[1 + index % 5], "linestyle": "none"}
        handles += axes.plot(*zip(*points, strict=True), **style)
        labels.append(f"{framework}, as printed")
    for row in rows:
        if abs(row["difference"]) > WRONG:
            x, printed, computed = row["eps_printed"], row["printed"], row["computed"]
            axes.plot([x, x], [printed, computed], color="#D55E00", linewidth=1, linestyle="--")
            words = f"{row['data']}: {printed:g},\ncomputed {computed:.3f}"
            axes.annotate(words, (x, min(printed, computed)), xytext=(6, -3), textcoords="offset points", va="top")
    _draw.frame(axes, "ε as printed (of three notions, which share no unit)", "chance of a successful attack")
    _draw.legend(axes, handles, labels)


@figure(
    "Claims of a paper: each published figure over the exact one, with the inputs at which it fails or is tightest."
)
def claims(rows: Rows, axes: Any) -> None:
    """Draw one line for each claim: published / exact on a log axis; left of 1 a published upper bound is too small."""
    ratios = [row["ratio"] for row in rows if row.get("ratio")]
    if not ratios:
        raise KeyError("rows with a ratio of published to exact numbers")
    inside = [ratio for ratio in ratios if LOW <= ratio <= HIGH]
    low, high = min(*inside, 0.5, 0.5) / 1.2, max(*inside, 1.2, 1.2) * 1.2
    texts = _texts(rows, _palette.of(axes).max_width)
    beside = {"xycoords": ("axes fraction", "data"), "xytext": (8, 0), "textcoords": "offset points", "va": "center"}
    for index, (row, words) in enumerate(zip(rows, texts, strict=True)):
        colour, ratio = VERDICT_COLOURS[row["verdict"]], row.get("ratio")
        if ratio is None:  # the exact number is 0
            ratio = math.copysign(math.inf, row["published"] - row["exact"])
        end = min(max(ratio, low), high)
        mark = "<" if ratio < low else ">" if ratio > high else VERDICT_MARKS[row["verdict"]]
        axes.plot([1, end], [index, index], color=colour, linewidth=1.4, zorder=2)
        axes.plot([end], [index], color=colour, marker=mark, markersize=6, zorder=3, clip_on=False)
        axes.annotate(words, (1.0, index), **beside, fontsize="x-small", color=colour, annotation_clip=False)
    axes.axvline(1, color="#000000", linewidth=0.8, zorder=1)
    is_narrow = (_palette.of(axes).max_width or NARROW) < NARROW
    steps = (1, 2, 5) if high < 200 * low and not is_narrow else (1,)
    ticks = [k * 10.0**e for e in range(-3, 4) for k in steps if low <= k * 10.0**e <= high]
    axes.set_xscale("log")
    axes.set_xlim(low, high)
    axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    axes.minorticks_off()
    axes.set_yticks(range(len(rows)), [row["proposition"] for row in rows], fontsize="small")
    axes.set_ylim(len(rows) - 0.4, -0.6)
    _draw.frame(axes, "published / exact", "statement", axis="x")
    letters = max(map(len, texts)) + max(len(row["proposition"]) for row in rows)
    width, height = axes.figure.get_size_inches()
    wide = _palette.of(axes).max_width or max(width, CLAIM_PLOT + CLAIM_LETTER * letters)
    axes.figure.set_size_inches(wide, max(height, CLAIM_LINE * len(rows) + 1))
    styles = [{"color": VERDICT_COLOURS[name], "marker": VERDICT_MARKS[name]} for name in VERDICT_COLOURS]
    styles += [{"color": "#555555", "marker": ">"}]
    handles = [axes.plot([], [], linestyle="none", **style)[0] for style in styles]
    place = {"loc": "upper left", "bbox_to_anchor": (0.0, -0.14 * min(1.0, 20 / len(rows)))}
    axes.legend(handles, VERDICT_LABELS, fontsize="x-small", ncols=1 if is_narrow else 3, frameon=False, **place)


def _texts(rows: Rows, max_width: float | None) -> list[str]:
    """Both figures of each claim, and the inputs unless the figure must stay narrow."""
    pairs = [f"{row['published']:.3g} against {row['exact']:.3g}" for row in rows]
    texts = [f"{pair}:  {row['at']}" for pair, row in zip(pairs, rows, strict=True)]
    if max_width is None:
        return texts
    if max_width < NARROW:
        return pairs
    letters = int((max_width - CLAIM_PLOT) / CLAIM_LETTER) - max(len(row["proposition"]) for row in rows)
    return [words if len(words) <= letters else f"{words[: letters - 1]}…" for words in texts]


@figure("The error of a generator over the number of records it was trained on.")
def error_over_records(rows: Rows, axes: Any) -> None:
    """Draw ``w2`` (two standard errors) and ``excess`` beside powers of n (Reshetova et al. 2023, Theorem 2)."""
    rows = sorted(rows, key=lambda row: float(row["records"]))
    n = [float(row["records"]) for row in rows]
    for colour, (column, label, power) in zip(_draw.COLOURS, ERROR_LINES, strict=False):
        if any(row.get(column) is None for row in rows):
            continue
        values = [float(row[column]) for row in rows]
        errors = [2 * row["spread"] * row[column] for row in rows] if column == "w2" else None
        mark = "o" if column == "w2" else "s"
        axes.errorbar(n, values, yerr=errors, color=colour, marker=mark, markersize=4, capsize=2, label=label)
        # the line of the expected power passes through the geometric mean of the points
        middle = math.exp(math.fsum(math.log(v) - power * math.log(k) for v, k in zip(values, n, strict=True)) / len(n))
        heights = [middle * k**power for k in n]
        axes.plot(n, heights, color=colour, linewidth=0.9, linestyle=DASHED, label=f"$n^{{{power:g}}}$")
    axes.set_xscale("log")
    axes.set_yscale("log")
    _draw.frame(axes, _draw.NAMES["records"], "error")
    axes.legend(fontsize="small")


@figure("The variance that a linear generator learns from privatised data, over lambda or over batch size.")
def linear_generator(rows: Rows, axes: Any) -> None:
    """Draw VARIANCE_LINES over the parameter, beside the data's (Reshetova, Chen, Ozgur 2023, Theorem 1)."""
    x = max(("lam", "batch"), key=lambda name: len({row[name] for row in rows if name in row}))
    rows = sorted(rows, key=lambda row: float(row[x]))
    handles, labels = [], []
    for colour, (column, (label, style)) in zip(_draw.COLOURS, VARIANCE_LINES.items(), strict=False):
        points = [(row[x], row[column]) for row in rows if row.get(column) is not None]
        if len(points) > 1 or (points and "marker" in style):
            handles += axes.plot(*zip(*points, strict=True), color=colour, **style)
            labels.append(label)
    variance = next((row["data"] for row in rows), None)
    handles.append(axes.axhline(variance, color="#000000", linewidth=0.9, linestyle="--", zorder=1))
    labels.append("variance of the data")
    if x == "batch":
        axes.set_xscale("log")
    _draw.ticks(axes, sorted({float(row[x]) for row in rows}))
    _draw.frame(axes, "λ, as a multiple of the theorem's" if x == "lam" else "batch size", "variance learned")
    _draw.legend(axes, handles, labels)


@figure(
    "The distribution of the squared projected length: a histogram, the exact and the normal density, and tail bounds."
)
def projection_law(rows: Rows, axes: Any) -> None:
    """Draw a projection-law table (Rakotomamonjy, Ralaivola 2021, Figures 1, 7); a far bound is named at the edge."""
    bins = [row for row in rows if row["part"] == "bin"]
    if len(bins) < 2:
        raise UsageError("projection-law draws the histogram of one distribution; give each distribution its own panel")
    x, drawn, density, normal_density = ([row[key] for row in bins] for key in ("x", "drawn", "density", "normal"))
    half = (x[1] - x[0]) / 2
    edges = [x[0] - half, *(v + half for v in x)]
    histogram = axes.stairs(drawn, edges, fill=True, color="#BBD7EA", label="draws of H")
    (exact,) = axes.plot(x, density, color="#0072B2", linewidth=1.8)
    (normal,) = axes.plot(x, normal_density, color="#D55E00", linewidth=1.4, linestyle="--")
    bounds = {row["name"]: row["x"] for row in rows if row["part"] == "bound"}
    right = max(x[-1], bounds.get("quantile", 0.0), bounds.get("clt", 0.0)) * 1.05
    marks = _mark_bounds(bounds, right, axes)
    axes.set_xlim(0 if edges[0] < 0.2 * right else edges[0], right)
    axes.set_ylim(0, 1.1 * max(*drawn, *normal_density))
    _draw.frame(axes, "squared length H of the projected difference", "density")
    labels = ["draws of H", "exact density", "normal density", *marks]
    _draw.legend(axes, [histogram, exact, normal, *marks.values()], labels)


def _mark_bounds(bounds: dict[str, float], right: float, axes: Any) -> dict[str, Any]:
    """Mark each bound by a vertical line, or by an arrow at the right edge if it lies beyond; returns them by label."""
    marks = {}
    for name, (label, colour) in TAIL_BOUNDS.items():
        if name not in bounds:
            continue
        words = f"{label} {bounds[name]:.3g}"
        if bounds[name] <= right:
            dashes = ":" if name == "clt" else "-"
            marks[words] = axes.axvline(bounds[name], color=colour, linewidth=1.4, linestyle=dashes)
        else:
            style = {"color": colour, "marker": ">", "linestyle": "none", "clip_on": False}
            (marks[f"{words}, beyond the axis"],) = axes.plot([1], [0.5], transform=axes.transAxes, **style)
    return marks


@figure(
    "The noise of each experiment by several ways of accounting, a line for each experiment and a mark for each way."
)
def projection_noise(rows: Rows, axes: Any) -> None:
    """Draw columns of noise by row of ``data`` on a log axis (Rakotomamonjy, Ralaivola 2021, Table 4)."""
    places = range(len(rows))
    for place, row in zip(places, rows, strict=True):
        values = [row[column] for column in WAYS]
        axes.plot([min(values), max(values)], [place, place], color="#999999", linewidth=1, zorder=1)
        axes.axhspan(place - 0.45, place + 0.45, color="#999999", alpha=0.12 * (place % 2), linewidth=0, zorder=0)
    for number, (column, (label, mark, colour)) in enumerate(WAYS.items()):
        # each way has a height of its own, since several give the same noise
        heights = [place + 0.72 * (number / (len(WAYS) - 1) - 0.5) for place in places]
        style = {"marker": mark, "color": colour, "linestyle": "none", "markersize": 5.5}
        axes.plot([row[column] for row in rows], heights, label=label, **style)
    width, height = axes.figure.get_size_inches()
    axes.figure.set_size_inches(width, max(height, ROW * len(rows)))
    axes.set_xscale("log")
    axes.margins(x=0.05)
    low, high = axes.get_xlim()
    axes.set_xticks(ticks := [tick for tick in TICKS if low <= tick <= high], [f"{tick:g}" for tick in ticks])
    axes.minorticks_off()
    axes.set_yticks(places, [row["data"] for row in rows])
    axes.set_ylim(len(rows) - 0.5, -0.5)
    eps = rows[0].get("eps", PAPER_EPS)
    _draw.frame(axes, f"noise σ for ε = {eps:g}, records at most 1 apart", "row of Table 4", axis="x")
    axes.legend(fontsize="small")


@figure(
    "Sliced distances over the distance of two means: samples with their spread over the draws, and the closed form."
)
def sliced_distance(rows: Rows, axes: Any) -> None:
    """Draw the distance over c, with one deviation (Rakotomamonjy, Ralaivola 2021, Figure 2)."""
    counts = sorted({row["records"] for row in rows})
    for case, colour in SLICED_COLOURS.items():
        # the limit is the same for every number of records
        for index, count in enumerate(counts[-1:] if case == CLOSED_FORM else counts):
            curve = sorted(
                (row for row in rows if row["case"] == case and row["records"] == count),
                key=lambda row: float(row["c"]),
            )
            xs, ys, spreads = ([float(row[key]) for row in curve] for key in ("c", "distance", "spread"))
            if case == CLOSED_FORM:
                label = "limit of many records (closed form)"
                style = {"marker": "", "linestyle": "--", "zorder": 3}
            else:
                label = f"{case}, {count:g} records"
                mark = _draw.MARKS[1 + index % (len(_draw.MARKS) - 1)]
                style = {"marker": mark, "linestyle": "solid", "zorder": 2}
            spacing = max(1, len(curve) // 10)
            axes.plot(xs, ys, color=colour, linewidth=1.5, markersize=4, markevery=spacing, label=label, **style)
            low, high = ([y + sign * s for y, s in zip(ys, spreads, strict=True)] for sign in (-1, 1))
            axes.fill_between(xs, low, high, color=colour, alpha=0.12, linewidth=0)
    axes.set_ylim(bottom=0)
    _draw.frame(axes, "c: every coordinate of the second mean", "sliced distance")
    axes.legend(fontsize="small", framealpha=0.85, loc="best")


@figure("The output distributions of two neighbouring inputs on a few outcomes, as bars side by side.")
def uniform_outputs(rows: Rows, axes: Any) -> None:
    """Draw bars of ``probability``, those of one case alone hatched (Sommer et al. 2019, Figure 3, left)."""
    cases = list(dict.fromkeys(row["case"] for row in rows))
    if len(cases) != 2:
        raise UsageError(f"uniform-outputs draws two inputs; found {len(cases)} cases")
    support = [{row["outcome"] for row in rows if row["case"] == case and row["probability"] > 0} for case in cases]
    for index, case in enumerate(cases):
        for shared in (True, False):
            bars = [
                (row["outcome"], row["probability"])
                for row in rows
                if row["case"] == case and row["probability"] > 0 and (row["outcome"] in support[1 - index]) == shared
            ]
            label = case if shared else f"{case}: an outcome that the other input never has"
            style = {"color": _draw.COLOURS[index], "edgecolor": "#000000", "linewidth": 0.6}
            style |= {} if shared else {"hatch": "///"}
            places = [outcome + (index - 0.5) * BAR_WIDTH for outcome, _ in bars]
            axes.bar(places, [height for _, height in bars], BAR_WIDTH, label=label, **style)
    axes.set_xticks(sorted(support[0] | support[1]))
    axes.set_ylim(0, 1.1 * max(row["probability"] for row in rows))
    _draw.frame(axes, "outcome", "probability", axis="y")
    axes.set_axisbelow(True)
    axes.legend(fontsize="small", framealpha=0.85)


@figure("W_p before and after one record is replaced, over the shift of the trained sample, or its sensitivity over n.")
def wp_gradient(rows: Rows, axes: Any) -> None:
    """Draw values of W_p over theta if theta varies, else sensitivities of W_p and W_p^p over n, a line for each p."""
    if len({row.get("theta") for row in rows}) > 1:
        _draw_shifts([row for row in rows if row["case"] == "W_p"], axes)
        return
    _draw.lines([{**row, "case": _loss_name(row)} for row in rows], axes, "records", "sensitivity")
    axes.set_ylabel("change of the gradient by one record")


def _loss_name(row: Row) -> str:
    """Return the loss with its order; the sensitivity of W_p is the same for every p."""
    if row["case"] == "W_p":
        return "$W_p$, every p"
    return f"$W_p^p$, p = {row['order']:g}" if row["case"] == "W_p^p" else str(row["case"]).replace("W_2^2", "$W_2^2$")


def _draw_shifts(rows: Rows, axes: Any) -> None:
    theta = [row["theta"] for row in rows]
    centre = next((row for row in rows if row["theta"] == 0), None)
    for column, slope, label, colour in GRADIENT_CURVES:
        if centre is not None and centre[slope] is not None:
            label = f"{label}: slope {centre[slope]:+.3g} at θ = 0"
        axes.plot(theta, [row[column] for row in rows], color=colour, linewidth=1.8, label=label)
        if centre is not None:
            axes.plot([0], [centre[column]], color=colour, marker="o", markersize=6)
    _draw.frame(axes, "shift θ of the sample that trains", "$W_p$")
    axes.legend(fontsize="small")
