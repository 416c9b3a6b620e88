"""The output distributions of two neighbouring inputs on a few outcomes, as bars side by side."""

from __future__ import annotations

from typing import Any

from wpriv.errors import UsageError
from wpriv.figures import _draw

WIDTH = 0.4  # of a bar; outcomes are whole numbers


def draw(rows: list[dict[str, Any]], axes: Any) -> None:
    """Draw ``probability`` over ``outcome``, a bar for each ``case``; outcomes of one case alone are hatched.

    Raises:
        UsageError: there are not two cases.
    Source:
        Sommer, Meiser, Mohammadi (2019), Figure 3, left.
    """
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
            places = [outcome + (index - 0.5) * WIDTH for outcome, _ in bars]
            axes.bar(places, [height for _, height in bars], WIDTH, label=label, **style)
    axes.set_xticks(sorted(support[0] | support[1]))
    axes.set_ylim(0, 1.6 * max(row["probability"] for row in rows))
    axes.set_xlabel("outcome")
    axes.set_ylabel("probability")
    _draw.grid(axes, axis="y")
    axes.set_axisbelow(True)
    axes.legend(fontsize="small", framealpha=0.85)
