"""Draw the figures of docs/concepts: python docs/concepts/figures/draw.py writes the SVG files beside this script.

The files are committed, and the pages show them as they are; run the script only to change a figure.
"""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import matplotlib as mpl
import numpy as np
from scipy.stats import norm

mpl.use("svg")
import matplotlib.pyplot as plt
from matplotlib.axes import Axes

FOLDER = Path(__file__).resolve().parent
BLUE, ORANGE, GREY, PALE = "#1f5fa8", "#d1661a", "#555555", "#dddddd"
mpl.rcParams.update(
    {
        "font.size": 9,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.titlesize": 9.5,
        "svg.hashsalt": "wpriv",
        "figure.facecolor": "white",
        "legend.frameon": False,
    }
)


def save(figure: plt.Figure, name: str) -> None:
    figure.savefig(FOLDER / f"{name}.svg", metadata={"Date": None}, bbox_inches="tight")
    plt.close(figure)


def profile(eps: np.ndarray, mu: float = 1.0) -> np.ndarray:
    """Return delta(eps) between two normal distributions whose means are ``mu`` standard deviations apart."""
    return norm.cdf(mu / 2 - eps / mu) - np.exp(eps) * norm.cdf(-mu / 2 - eps / mu)


def hockey_stick() -> None:
    """delta as the area by which P exceeds e^eps Q, and as a function of eps."""
    figure, (left, right) = plt.subplots(1, 2, figsize=(7.6, 2.9), width_ratios=(1.5, 1))
    x, eps = np.linspace(-3, 5, 201), 1.0
    p, q = norm.pdf(x, 1), norm.pdf(x)
    left.plot(x, q, color=GREY, lw=1.2)
    left.plot(x, p, color=BLUE, lw=1.6)
    left.plot(x, np.exp(eps) * q, color=ORANGE, lw=1.2, ls="--")
    left.fill_between(x, p, np.exp(eps) * q, where=p > np.exp(eps) * q, color=BLUE, alpha=0.3, lw=0)
    left.text(0, 0.41, "Q", color=GREY, ha="center")
    left.text(1, 0.41, "P", color=BLUE, ha="center")
    left.text(-2.3, 0.42, r"$e^{\varepsilon} Q$", color=ORANGE)
    left.annotate(r"area = $\delta(1)$ = 0.127", (2.05, 0.17), (2.6, 0.31), color=BLUE, arrowprops={"arrowstyle": "-"})
    left.set(ylim=(0, 0.5), xlabel="released value", ylabel="density", title="P, Q and Q times e (ε = 1)")
    grid = np.linspace(0, 4, 81)
    right.plot(grid, profile(grid), color=BLUE)
    right.plot([1], [profile(np.array(1.0))], "o", color=BLUE, ms=5)
    right.annotate("(1, 0.127)", (1, 0.127), (1.3, 0.18), color=BLUE)
    right.set(xlabel="ε", ylabel="δ(ε)", ylim=(0, 0.42), xlim=(0, 4), title="privacy curve")
    figure.tight_layout()
    save(figure, "hockey-stick")


def bracketed_profile() -> None:
    """A convex profile between a piecewise-linear one above it and one below it."""
    figure, axes = plt.subplots(figsize=(6.4, 3.3))
    t = np.linspace(0.0, 7.0, 351)
    f = profile(np.log(np.maximum(t, 1e-9)))
    nodes = np.array([0.0, 0.4, 1.0, 2.4, 4.6, 7.0])
    heights = profile(np.log(np.maximum(nodes, 1e-9)))
    chords = np.interp(t, nodes, heights)
    gaps = [float((chords - f)[(t >= a) & (t <= b)].max()) for a, b in pairwise(nodes)]
    pushed = heights - np.maximum(np.append(gaps, 0), np.append(0, gaps))
    floor = np.maximum(0.0, 1 - nodes)
    # a node is pushed where it and its neighbours stay above (1 - t)_+, which every profile does; else it lies on that
    above = np.concatenate([[True], pushed >= floor, [True]])
    below = np.where(above[:-2] & above[1:-1] & above[2:], pushed, floor)
    lower = np.interp(t, nodes, below)
    assert np.all(lower <= f + 1e-9)
    assert np.all(chords >= f - 1e-9)
    axes.fill_between(t, lower, chords, color=PALE, lw=0)
    axes.plot(t, chords, color=ORANGE, lw=1.2, label="pessimistic: chords, never below")
    axes.plot(t, f, color="black", lw=1.6, label="privacy profile of one step")
    axes.plot(t, lower, color=BLUE, lw=1.2, label="optimistic: nodes pushed down, never above")
    axes.plot(nodes, heights, "o", color=ORANGE, ms=3.5)
    axes.plot(nodes, below, "o", color=BLUE, ms=3.5)
    axes.set(xlabel=r"$t = e^{\varepsilon}$", ylabel=r"$\delta$", xlim=(0, 7.1), ylim=(0, 0.75))
    axes.legend(loc="upper right")
    save(figure, "bracketed-profile")


def neighbours() -> None:
    """How far a sum of clipped vectors moves when a record is removed, and when it is replaced."""
    figure, panels = plt.subplots(1, 2, figsize=(6.8, 3.3))
    angle = np.radians(35)
    record = np.array([np.cos(angle), np.sin(angle)])
    titles = ("add-remove: the sum moves by at most C", "replace-one: the sum moves by at most 2C")
    for axes, title, replaced in zip(panels, titles, (False, True), strict=True):
        axes.add_patch(plt.Circle((0, 0), 1, color=PALE, alpha=0.5))
        axes.add_patch(plt.Circle((0, 0), 1, fill=False, color=GREY, lw=1))
        arrow(axes, (0, 0), record, GREY)
        axes.text(*(record * 1.07), "the record", color=GREY)
        if replaced:
            arrow(axes, (0, 0), -record, GREY)
            axes.text(*(-record * 1.07), "its replacement", color=GREY, ha="right", va="top")
        aside = np.array([0.06, -0.09])
        start, end = record + aside, (-record if replaced else np.zeros(2)) + aside
        arrow(axes, start, end, ORANGE, 2.2)
        axes.text(0.30, -0.18, "2C" if replaced else "C", color=ORANGE, fontsize=12)
        axes.plot([0], [0], ".", color="black", ms=4)
        axes.set(xlim=(-1.9, 1.9), ylim=(-1.15, 1.15), title=title, aspect="equal")
        axes.axis("off")
    panels[0].text(0, -1.07, "ball of radius C", color=GREY, ha="center", va="top")
    figure.tight_layout()
    save(figure, "neighbours")


def arrow(axes: Axes, start: np.ndarray, end: np.ndarray, color: str, width: float = 1.3) -> None:
    style = {"arrowstyle": "-|>", "color": color, "lw": width, "shrinkA": 0, "shrinkB": 0}
    axes.annotate("", end, start, arrowprops=style)


def sampling() -> None:
    """Which of twelve records take part in which of twelve steps, under three samplings and under shuffling."""
    rng, records, batch, steps = np.random.default_rng(7), 12, 3, 12
    poisson = rng.random((records, steps)) < batch / records
    fixed = np.zeros((records, steps), bool)
    for step in range(steps):
        fixed[rng.choice(records, batch, replace=False), step] = True
    shuffled = np.zeros((records, steps), bool)
    for epoch in range(0, steps, records // batch):
        order = rng.permutation(records)
        for place in range(records // batch):
            shuffled[order[place * batch : (place + 1) * batch], epoch + place] = True
    grids = {
        "none": np.ones((records, steps), bool),
        "poisson": poisson,
        "fixed": fixed,
        "shuffle (a wide bracket)": shuffled,
    }
    figure, panels = plt.subplots(1, 4, figsize=(8.6, 2.8))
    for axes, (name, grid) in zip(panels, grids.items(), strict=True):
        colour = ORANGE if name.startswith("shuffle") else BLUE
        for part, shade in ((~grid, "#eeeeee"), (grid, colour)):
            axes.plot(*np.nonzero(part)[::-1], "s", color=shade, ms=7, mew=0)
        for step in range(steps):
            axes.text(step, -0.9, grid[:, step].sum(), ha="center", va="top", fontsize=6.5, color=GREY)
        if name.startswith("shuffle"):
            for epoch in (4, 8):
                axes.axvline(epoch - 0.5, color="black", lw=1)
        limits = (-0.7, records - 0.3)
        axes.set(title=name, xticks=[], yticks=[], aspect="equal", xlim=limits, ylim=limits, xlabel="\nsteps")
        for spine in axes.spines.values():
            spine.set_visible(False)
    panels[0].set_ylabel("records")
    figure.tight_layout(w_pad=0.6)
    save(figure, "sampling")


def low_digits() -> None:
    """Float32 noise around 0, and noise around -1 to which 1 was added: the latter lies on a grid of 2^-24."""
    import torch

    generator = torch.Generator().manual_seed(0)
    unit, first, last = 2.0**-24, 1, 13
    noise, moved = [], []
    for _ in range(60):
        draw = torch.randn(5_000_000, generator=generator)
        for kept, values in ((noise, draw), (moved, draw + 1)):
            scaled = values.double() / unit
            kept.append(scaled[(scaled >= first) & (scaled <= last)])
    figure, axes = plt.subplots(figsize=(6.8, 1.9))
    rng = np.random.default_rng(0)
    for height, pieces, colour in ((1, noise, BLUE), (0, moved, ORANGE)):
        values = torch.cat(pieces).numpy()
        axes.plot(values, height + rng.uniform(-0.22, 0.22, len(values)), ".", color=colour, ms=4)
    axes.set(yticks=[0, 1], yticklabels=["1 + noise", "noise"], ylim=(-0.5, 1.5), xlim=(first - 0.3, last + 0.3))
    axes.set(xticks=range(first, last + 1), xlabel=r"released float32 number, in units of $2^{-24}$")
    axes.spines["left"].set_visible(False)
    axes.tick_params(axis="y", length=0)
    save(figure, "low-digits")


if __name__ == "__main__":
    for draw in (hockey_stick, bracketed_profile, neighbours, sampling, low_digits):
        draw()
