"""The styles of figures: for the screen, and for a paper, in the width of one column or of two."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from wpriv.errors import UnknownName, UsageError

SCREEN, PAPER = "screen", "paper"
NAMES = (SCREEN, PAPER)
# widths of a text column and of a page in inches: 85 mm and 175 mm fit the common journals and proceedings
COLUMN, PAGE = 3.35, 6.89
POINTS = 72.0  # of an inch
MOST_LINES, MOST_SIDE_BY_SIDE = 6, 4  # of panels of a grid on a screen
MARGIN = 0.62  # inches of a row of panels above and below the axes: label, numbers and title
# fonts as TrueType, which publishers can embed; the same identifiers in every file of the same table
_COMMON = {"pdf.fonttype": 42, "ps.fonttype": 42, "svg.hashsalt": "wpriv", "axes.formatter.use_mathtext": True}
_PAPER = {
    "savefig.dpi": 300,
    **{key: 8.0 for key in ("font.size", "axes.labelsize", "axes.titlesize", "legend.title_fontsize")},
    **{key: 7.0 for key in ("xtick.labelsize", "ytick.labelsize", "legend.fontsize")},
    **{key: 0.6 for key in ("axes.linewidth", "xtick.major.width", "ytick.major.width")},
    "xtick.major.size": 2.5,
    "ytick.major.size": 2.5,
    "axes.labelpad": 2.0,
    "legend.borderpad": 0.3,
    "legend.labelspacing": 0.25,
    "legend.handlelength": 1.8,
    "axes.formatter.useoffset": False,
}


@dataclass(frozen=True)
class Style:
    """How figures are set.

    Attributes:
        name: ``screen`` or ``paper``.
        width: inches of the whole figure; 0 where each panel has a fixed size.
        lines: factor of the widths of lines and the sizes of marks.
        smallest: the least size of type, in points.
        legend_inside: the most entries that a legend within the axes has.
        settings: of matplotlib.
    """

    name: str
    width: float = 0.0
    lines: float = 1.0
    smallest: float = 0.0
    legend_inside: int = 6
    settings: Mapping[Any, Any] = field(default_factory=lambda: {**_COMMON, "savefig.dpi": 160})

    @property
    def is_paper(self) -> bool:
        return self.name == PAPER

    def size(self, columns: int, lines: int) -> tuple[float, float]:
        """Return width and height in inches of a figure with some columns and lines of panels."""
        if not self.is_paper:
            scale = 1.0 if columns < 4 else 0.65  # panels of a large grid are smaller
            return 6.0 * columns * scale, 4.2 * lines * scale
        panel = self.width / columns
        return self.width, lines * (min(0.62 * panel, 2.4) + MARGIN)

    def columns(self, panels: int, grid: int | None, *, wide: bool = False) -> int:
        """Return the number of panels side by side.

        Args:
            panels: their number. grid: columns of the grid that their names form; None if they form none.
            wide: the panels are tables, which need twice the width.
        """
        if wide:
            return min(panels, 1 if self.is_paper and self.width < PAGE else 2)
        if not self.is_paper:
            if grid is not None and panels > MOST_LINES * grid:
                grid *= max(1, MOST_SIDE_BY_SIDE // grid)  # of a high grid, several rows stand side by side
            return grid or min(panels, 3 if panels in (3, 5, 6) or panels > 8 else 2)
        most = (1 if panels < 5 else 2) if self.width < PAGE else 2 if panels in (2, 4) else 3 if panels < 12 else 4
        if grid is not None:
            # whole rows of the grid stay together where they fit
            return grid if grid <= most + 1 else math.ceil(grid / math.ceil(grid / most))
        return min(panels, most)


def of(name: str = SCREEN, columns: int | None = None) -> Style:
    """Return a style by its name.

    Args:
        columns: of the page that a figure for a paper is as wide as: 1 (the default) or 2.
    Raises:
        UsageError: no such style, another number of columns, or columns of a figure for the screen.
    """
    if name not in NAMES:
        raise UnknownName("style", name, NAMES, "--style")
    if columns not in (None, 1, 2):
        raise UsageError(f"--columns takes 1 or 2, the columns of the page that the figure spans; found {columns}")
    if name == SCREEN:
        if columns is not None:
            raise UsageError("--columns is the width of a figure for a paper: give --style paper with it")
        return Style(SCREEN)
    width = PAGE if columns == 2 else COLUMN
    inside = 4 if columns == 2 else 3
    return Style(PAPER, width, 0.65, 6.0, inside, {**_COMMON, **_PAPER})
