"""Make, set and write figures by matplotlib, which is loaded here alone.

A style is for the screen, or for a paper in the width of one column or of two. A drawn figure gets letters and titles
of its panels, one legend for all of them, and sizes of lines and type.
"""

from __future__ import annotations

import io
import math
import os
import textwrap
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from wpriv.errors import MissingResource, UnknownName, UsageError
from wpriv.figures import _names, _palette
from wpriv.files import durable_writes

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.legend import Legend

# without dates and versions, the same table gives the same file
METADATA: dict[str, dict[str, None]] = {"png": {"Software": None}, "pdf": {"CreationDate": None}, "svg": {"Date": None}}


def figure_class() -> type[Figure]:
    """Return matplotlib's class of figures, without pyplot: no window system is used."""
    try:
        from matplotlib.figure import Figure
    except (ValueError, ImportError) as error:
        if isinstance(error, ModuleNotFoundError) and error.name == "matplotlib":
            raise MissingResource(
                "figures need the Python package matplotlib, which is not installed. Install wpriv with all it needs, "
                "or this package alone"
            ) from None
        backend = os.environ.get("MPLBACKEND")
        if backend and "backend" in str(error):
            raise MissingResource(
                f"MPLBACKEND is {backend[:60]!r}, which matplotlib does not know; unset it to draw figures"
            ) from None
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        text = f"figures need matplotlib, which does not load here: {reason}. Check its settings"
        raise MissingResource(text) from None
    return Figure


def unfit(reason: str) -> UsageError:
    return UsageError(f"{reason}. Choose another with --figure")


def save(figure: Figure, out: Path, formats: Sequence[str], stem: str) -> list[Path]:
    """Write a figure in each format, each file in one piece."""
    files = []
    durable_writes.make_folder(out)
    for kind in formats:
        path, content = out / f"{stem}.{kind}", io.BytesIO()
        try:
            with warnings.catch_warnings():
                warnings.filterwarnings("error", message="constrained_layout not applied")
                figure.savefig(content, format=kind, metadata=METADATA[kind])
        except UserWarning:
            raise unfit("the figure does not fit this table: its legend leaves no room for the axes") from None
        except (ValueError, OverflowError) as error:
            raise unfit(f"the figure does not fit this table: {error}") from None
        durable_writes.replace(path, content.getvalue())
        files.append(path)
    return files


SCREEN, PAPER, DARK = "screen", "paper", "dark"
NAMES = (SCREEN, PAPER, DARK)
# widths of a text column and of a page in inches: 85 mm and 175 mm fit the common journals and proceedings
COLUMN, PAGE = 3.35, 6.89
POINTS = 72.0  # of an inch
MOST_LINES, MOST_SIDE_BY_SIDE = 6, 4  # of panels of a grid on a screen
MARGIN = 0.62  # inches of a row of panels above and below the axes: label, numbers and title
# fonts as TrueType, which publishers can embed; the same identifiers in every file of the same table
_COMMON: dict[str, Any] = {"pdf.fonttype": 42, "ps.fonttype": 42, "svg.hashsalt": "wpriv"}
# axes end a little beyond the data
_COMMON |= {"axes.formatter.use_mathtext": True, "axes.xmargin": 0.02}
_SCREEN = {**_COMMON, "savefig.dpi": 160}
_DARK = {
    **_SCREEN,
    **dict.fromkeys(("figure.facecolor", "axes.facecolor", "savefig.facecolor", "legend.facecolor"), _palette.NIGHT),
    **dict.fromkeys(("text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color"), _palette.DAY),
    "grid.color": "#8A939C",
    "legend.edgecolor": "#5B6570",
}
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
        name: ``screen``, ``paper`` or ``dark``.
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
    settings: Mapping[Any, Any] = field(default_factory=lambda: _SCREEN)

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
        name: ``screen``; ``dark``, the same on a dark ground; or ``paper``.
        columns: of the page that a figure for a paper is as wide as: 1 (the default) or 2.
    """
    if name not in NAMES:
        raise UnknownName("style", name, NAMES, "--style")
    if columns not in (None, 1, 2):
        raise UsageError(f"--columns takes 1 or 2, the columns of the page that the figure spans; found {columns}")
    if name != PAPER:
        if columns is not None:
            raise UsageError("--columns is the width of a figure for a paper: give --style paper with it")
        return Style(SCREEN) if name == SCREEN else Style(DARK, settings=_DARK)
    width = PAGE if columns == 2 else COLUMN
    inside = 4 if columns == 2 else 3
    return Style(PAPER, width, 0.65, 6.0, inside, {**_COMMON, **_PAPER})


LetteredPanel = tuple["Axes", str, bool]  # axes; title; whether the title is only the name of the panel
Entries = dict[str, Any]  # the handles of a legend by their labels
# entries of a legend for all panels that any single panel may lack
EXTRA = 4
MOST_ENTRIES = 48
FEW_TICKS = 4  # intervals of an axis whose numbers would overlap
LARGEST = 0.25  # of its panel, the share that a legend within the axes may take
TITLE, GAP = 0.45, 0.25  # inches above a picture, and beside it
LABEL = 0.8  # of the size of a panel, the most that a line of a label or a title takes
LINE_HEIGHT, LETTER_WIDTH, HANDLE = 1.55, 0.56, 4.5  # of the size of type


def finish(figure: Figure, panels: Sequence[LetteredPanel], columns: int, style: Style) -> None:
    """Set titles, labels, legends, lines and type of a figure whose panels are drawn."""
    _fit_pictures(figure, [axes for axes, _, _ in panels], columns, style)
    _fit_squares(figure, [axes for axes, _, _ in panels], columns, style)
    _set_titles(figure, panels, columns, style)
    _drop_repeated_labels([axes for axes, _, _ in panels], columns)
    _wrap_labels(figure, columns, -(-len(panels) // columns))
    _set_lines(figure, style)
    _set_symbols(figure)
    _lay_out(figure)
    _set_legends(figure, [axes for axes, _, _ in panels], columns, style)
    _set_least_type(figure, style)
    if style.name == DARK:
        _palette.darken(figure)


def _fit_pictures(figure: Figure, panels: Sequence[Axes], columns: int, style: Style) -> None:
    """Make a figure of pictures alone as high as they need, or else as wide; one for a paper keeps its width."""
    if not all(axes.images for axes in panels):
        return
    width, height = figure.get_size_inches()
    ratios = [max(high / wide for high, wide in (image.get_size() for image in axes.images)) for axes in panels]
    # a line of panels is as high as its highest one, below whose top all of it begin
    starts = range(0, len(panels), columns)
    heights = [width / columns * max(ratios[start : start + columns]) + TITLE for start in starts]
    for axes in panels:
        axes.set_anchor("N")
        if (grid := axes.get_gridspec()) is not None:
            grid.set_height_ratios(heights)
    if sum(heights) > height and not style.is_paper and not any(axes.get_yticklabels() for axes in panels):
        width = columns * ((height / len(heights) - TITLE) / max(ratios) + GAP)
    figure.set_size_inches(width, min(height, sum(heights)))


def _fit_squares(figure: Figure, panels: Sequence[Axes], columns: int, style: Style) -> None:
    """Give panels whose axes have the same unit the same limits, and places that are about square."""
    if len(panels) < 2 or any(axes.images or axes.get_aspect() != 1.0 for axes in panels):
        return
    for axis in ("x", "y"):
        ends = [getattr(axes, f"get_{axis}lim")() for axes in panels]
        for axes in panels:
            getattr(axes, f"set_{axis}lim")(min(low for low, _ in ends), max(high for _, high in ends))
    width, height = figure.get_size_inches()
    lines = -(-len(panels) // columns)
    if style.is_paper:
        figure.set_size_inches(width, lines * width / columns)
    else:
        figure.set_size_inches(columns * height / lines, height)


def caption(panels: Sequence[LetteredPanel], source: str) -> str:
    """Return the titles of the panels with their letters, and the source: what a caption says."""
    titles = [title.replace("\n", " ") for _, title, _ in panels]
    if len(panels) > 1:
        titles = [f"({letter(place)}) {title}".rstrip() for place, title in enumerate(titles)]
    text = "; ".join(title for title in titles if title)
    return " ".join(f"{part.rstrip('.')}." for part in (text[:1].upper() + text[1:], source) if part)


def letter(place: int) -> str:
    """Return a, b, ..., z, aa, ab, ... for 0, 1, ..., 25, 26, 27, ..."""
    first, last = divmod(place, 26)
    return (letter(first - 1) if first else "") + "abcdefghijklmnopqrstuvwxyz"[last]


def _set_titles(figure: Figure, panels: Sequence[LetteredPanel], columns: int, style: Style) -> None:
    """Letter the panels, titles in a paper's caption but for names; each further line of titles adds height."""
    width, height = figure.get_size_inches()
    size = style.settings.get("axes.titlesize", 10.0)
    share = LABEL if len(panels) > 1 else 1.0
    letters = max(12, int(width / columns * POINTS * share / (size * LETTER_WIDTH)))
    more = [0] * len(panels)
    for place, (axes, title, is_name) in enumerate(panels):
        shown = title if is_name or not style.is_paper else ""
        words = f"({letter(place)}) {shown}".rstrip() if len(panels) > 1 else shown
        # a name and its value stay on one line
        whole = (line.replace(" = ", "\xa0=\xa0") for line in words.splitlines())
        lines = [part.replace("\xa0", " ") for line in whole for part in textwrap.wrap(line, letters)]
        if lines:
            axes.set_title("\n".join(lines), fontsize=size, loc="left" if len(panels) > 1 else "center")
            more[place] = len(lines) - 1
    added = sum(max(more[start : start + columns]) for start in range(0, len(panels), columns))
    figure.set_size_inches(width, height + added * LINE_HEIGHT * size / POINTS)


def _drop_repeated_labels(panels: Sequence[Axes], columns: int) -> None:
    """Leave the labels of the axes at the left and below, if they are the same on all of more than three panels."""
    if len(panels) < 4 or len({(axes.get_xlabel(), axes.get_ylabel()) for axes in panels}) > 1:
        return
    for place, axes in enumerate(panels):
        if place % columns and axes.get_ylabel():
            axes.set_ylabel("")
        if place + columns < len(panels):
            axes.set_xlabel("")


def _wrap_labels(figure: Figure, columns: int, lines: int) -> None:
    """Wrap labels of axes that are longer than their panel, so that they do not run into those of its neighbours."""
    width, height = figure.get_size_inches()
    for axes in figure.axes:
        for axis, length in ((axes.xaxis, width / columns), (axes.yaxis, height / lines)):
            label = axis.get_label()
            letters = max(12, int(length * POINTS * LABEL / (float(label.get_fontsize()) * LETTER_WIDTH)))
            parts = [part for line in label.get_text().splitlines() for part in textwrap.wrap(line, letters)]
            label.set_text("\n".join(parts))


def _set_lines(figure: Figure, style: Style) -> None:
    if style.lines == 1.0:
        return
    for axes in figure.axes:
        legend = axes.get_legend()
        handles = [] if legend is None else [each for each in legend.legend_handles if hasattr(each, "set_linewidth")]
        artists: list[Any] = [*axes.lines, *axes.collections, *handles]
        for artist in artists:
            widths, factor = artist.get_linewidth(), style.lines
            artist.set_linewidth([w * factor for w in widths] if hasattr(widths, "__len__") else widths * factor)
            if hasattr(artist, "get_markersize"):
                artist.set_markersize(artist.get_markersize() * factor)


def _set_symbols(figure: Figure) -> None:
    """Write letters and powers in one notation, also in the names of cases and panels: ε for eps, 10⁻⁵ for 1e-5."""
    from matplotlib.text import Text
    from matplotlib.ticker import FixedLocator

    for axes in figure.axes:
        for axis in (axes.xaxis, axes.yaxis):
            if isinstance(axis.get_major_locator(), FixedLocator):
                names = [_names.symbols(label.get_text()) for label in axis.get_majorticklabels()]
                axis.set_ticks(axis.get_majorticklocs(), names)
    for text in figure.findobj(Text):
        text.set_text(_names.symbols(text.get_text()))


def _set_legends(figure: Figure, panels: Sequence[Axes], columns: int, style: Style) -> None:
    """Replace legends that agree by one below the panels; set long or covering ones below their axes."""
    legends = {axes: legend for axes in panels if (legend := axes.get_legend()) is not None}
    entries = {axes: _entries(legend) for axes, legend in legends.items()}
    longest = max(map(len, entries.values()), default=0)
    if longest > MOST_ENTRIES:
        raise unfit(f"the figure does not fit this table: its legend would have {longest} entries")
    from matplotlib.transforms import ScaledTranslation

    titles = {axes: legend.get_title().get_text() for axes, legend in legends.items()}
    together = _together(list(entries.values())) if len(set(titles.values())) == 1 else {}
    if not legends:
        return
    covering = _covering(legends)
    long = [axes for axes in entries if axes in covering or len(entries[axes]) > style.legend_inside]
    if len(panels) == 1:
        together = together if long else {}
    if together:
        for legend in legends.values():
            legend.remove()
        options = _below(figure, list(together), 1, style, title=next(iter(titles.values())))
        figure.legend(handles=list(together.values()), loc="outside lower center", **options)
        return
    for start in range(0, len(panels), columns):
        row = [axes for axes in panels[start : start + columns] if axes in long]
        for axes in row:
            legends[axes].remove()
            options = _below(figure, list(entries[axes]), columns, style, title=titles[axes], grow=axes is row[0])
            labels = axes.xaxis.get_tightbbox()
            lower = axes.get_window_extent().y0 - labels.y0 if labels else 0.0
            place = axes.transAxes + ScaledTranslation(0, -lower / figure.dpi, figure.dpi_scale_trans)
            options |= {"bbox_to_anchor": (0.5, 0), "bbox_transform": place}
            axes.legend(handles=list(entries[axes].values()), loc="upper center", **options)


def _lay_out(figure: Figure) -> None:
    """Give everything its place, with fewer numbers on an axis where they would overlap."""
    from matplotlib.ticker import MaxNLocator

    with warnings.catch_warnings():
        # a layout that leaves no room for the axes is refused where the file is written
        warnings.filterwarnings("ignore", message="constrained_layout not applied")
        figure.draw_without_rendering()
    for axes in figure.axes:
        boxes = [label.get_window_extent() for label in axes.get_xticklabels() if label.get_text()]
        if axes.get_xscale() == "linear" and any(one.x1 > other.x0 > one.x0 for one, other in pairwise(boxes)):
            axes.xaxis.set_major_locator(MaxNLocator(FEW_TICKS))


def _covering(legends: dict[Axes, Legend]) -> set[Axes]:
    """The axes whose legend covers a part of a curve, a bar or a text, or more than a quarter of the panel."""
    covering = set()
    for axes, legend in legends.items():
        box, panel = legend.get_window_extent(), axes.get_window_extent()
        if not panel.overlaps(box):
            continue
        lines = (line for line in axes.lines if len(line.get_path()))
        paths = [line.get_transform().transform_path(line.get_path()) for line in lines]
        boxes = [artist.get_window_extent() for artist in [*axes.texts, *axes.patches]]
        is_large = box.width * box.height > LARGEST * panel.width * panel.height
        if is_large or any(path.intersects_bbox(box, filled=False) for path in paths) or any(map(box.overlaps, boxes)):
            covering.add(axes)
    return covering


def _entries(legend: Legend) -> Entries:
    return dict(zip([text.get_text() for text in legend.get_texts()], legend.legend_handles, strict=True))


def _together(entries: list[Entries]) -> Entries:
    """The entries of all panels, if each label has one look, and no two have the same, and the panels share most."""
    together: Entries = {}
    for label, handle in (entry for each in entries for entry in each.items()):
        if label in together and _look(together[label]) != _look(handle):
            return {}
        together.setdefault(label, handle)
    longest = max(map(len, entries), default=0)
    looks = [_look(handle) for handle in together.values() if _is_seen(handle)]
    if len(entries) > 1 and len(set(looks)) < len(looks):
        return {}
    is_shared = len(entries) == 1 or len(together) < sum(map(len, entries))
    return together if is_shared and len(together) <= longest + EXTRA else {}


def _below(
    figure: Figure, labels: list[str], columns: int, style: Style, *, title: str, grow: bool = True
) -> dict[str, Any]:
    """Labels, columns and type of a legend below axes of a part of the width; the figure becomes as much higher."""
    size = style.settings.get("legend.fontsize", 9.0)
    width, height = figure.get_size_inches()
    room = 0.95 * width / columns * POINTS / size
    letters = int((room - HANDLE) / LETTER_WIDTH)
    wrapped = ["\n".join(textwrap.wrap(label, max(letters, 12))) for label in labels]
    widest = min(letters, max(map(len, labels))) * LETTER_WIDTH + HANDLE
    side_by_side = max(1, min(len(labels), int(room / widest), 4))
    lines = sum(label.count("\n") + 1 for label in wrapped) / side_by_side + 1 + bool(title)
    if grow:
        figure.set_size_inches(width, height + (lines + 0.5) * LINE_HEIGHT * size / POINTS)
    options = {"title": title or None, "title_fontsize": size, "fontsize": size}
    return {"labels": wrapped, "ncols": side_by_side, "frameon": False, **options}


def _look(handle: object) -> tuple[str, ...]:
    names = ("get_color", "get_linestyle", "get_marker", "get_markerfacecolor", "get_facecolor", "get_hatch")
    return (type(handle).__name__, *(str(getattr(handle, name)()) for name in names if hasattr(handle, name)))


def _is_seen(handle: Any) -> bool:
    """Tell whether a handle shows anything: a method without an answer has an entry without line and mark."""
    return not hasattr(handle, "get_marker") or (handle.get_linestyle(), handle.get_marker()) != ("None", "None")


def _set_least_type(figure: Figure, style: Style) -> None:
    artists: list[Any] = figure.findobj() if style.smallest else []
    for artist in artists:
        if hasattr(artist, "set_fontsize") and hasattr(artist, "get_text"):
            artist.set_fontsize(max(style.smallest, artist.get_fontsize()))
