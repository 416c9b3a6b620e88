"""One colour and one mark for each method, in all panels of a figure and, for known methods, in all figures."""

from __future__ import annotations

from collections.abc import Iterable
from colorsys import hls_to_rgb, rgb_to_hls
from typing import Any
from weakref import WeakKeyDictionary

from wpriv.figures import _names

# the palette of Okabe and Ito, distinguishable under the common forms of colour blindness, and two more; then those for
# figures of more methods, which their marks help to tell apart
COLOURS = (
    *("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#8A6D00", "#882255", "#777777"),
    *("#7A0403", "#5D3FD3", "#7FB800", "#1B4F4A", "#FF6F91", "#00B5AD", "#A0522D", "#B39DDB", "#C2B200", "#3D5A80"),
    *("#4B8B3B", "#D81B60"),
)
MARKS = ("", "o", "s", "^", "D", "v", "P", "X", "<", ">")
NIGHT, DAY = "#14181D", "#E6E9EC"  # ground and type of dark figures
LEAST_CONTRAST = 4.5  # of type and lines on the dark ground, by the Web Content Accessibility Guidelines
# the colour and the mark of known methods: the tight answer has no mark, and is drawn wide instead
FIXED: dict[str, tuple[int, str]] = {"exact": (6, ""), **_names.STYLES}


class Palette:
    """The styles of one figure.

    A key of ``FIXED`` has its own colour and mark. Another key has the first colour that is neither in use in this
    figure nor reserved, and keeps it in every panel. ``max_width`` is the width of a figure that must not become wider,
    in inches.
    """

    def __init__(self, max_width: float | None = None) -> None:
        self.max_width = max_width
        self._styles: dict[str, tuple[str, str]] = {}
        self._marks: dict[str, str] = {}
        self._reserved: set[int] = set()

    def reserve(self, keys: Iterable[str]) -> None:
        """Keep the colours of known methods, which other panels draw, from being given to others."""
        self._reserved |= {FIXED[key][0] for key in keys if key in FIXED}

    def style(self, key: str) -> tuple[str, str]:
        """Return the colour and the mark of a method."""
        if key not in self._styles:
            self._styles[key] = self._new(key)
        return self._styles[key]

    def colour(self, key: str) -> str:
        """Return the colour of a method."""
        return self.style(key)[0]

    def mark(self, key: str) -> str:
        """Return the mark of what has no colour of its own, such as an accountant where colours are those of cases."""
        if key not in self._marks:
            known = FIXED[key][1] if key in FIXED else ""
            self._marks[key] = known or MARKS[1 + len(self._marks) % (len(MARKS) - 1)]
        return self._marks[key]

    def _new(self, key: str) -> tuple[str, str]:
        if key in FIXED:
            colour, mark = FIXED[key]
            return COLOURS[colour], mark
        used = {colour for colour, _ in self._styles.values()}
        free = [i for i, c in enumerate(COLOURS) if c not in used and i not in self._reserved]
        count = len(self._styles)
        colour = free[0] if free else count % len(COLOURS)
        # marks tell apart methods that must share a colour, and help where colours are not seen
        return COLOURS[colour], MARKS[1 + count % (len(MARKS) - 1)]


_PALETTES: WeakKeyDictionary[Any, Palette] = WeakKeyDictionary()


def of(axes: Any) -> Palette:
    """Return the palette of the figure that some axes belong to."""
    return _PALETTES.setdefault(axes.figure, Palette())


def prepare(figure: Any, methods: Iterable[str], max_width: float | None) -> None:
    """Give a new figure its palette, which knows the methods of all panels and the width that it must keep."""
    palette = Palette(max_width)
    palette.reserve(methods)
    _PALETTES[figure] = palette


def contrast(colour: Any, ground: Any = NIGHT) -> float:
    """Return the contrast of two colours, 1 to 21, by the Web Content Accessibility Guidelines 2."""
    light, dark = sorted((_luminance(colour), _luminance(ground)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def _luminance(colour: Any) -> float:
    from matplotlib.colors import to_rgb

    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in to_rgb(colour)]
    return sum(weight * c for weight, c in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


def on_dark(colour: Any) -> tuple[float, ...]:
    """Return a colour for the dark ground: black and white trade places, and dark colours become lighter."""
    from matplotlib.colors import to_rgb, to_rgba

    *rgb, alpha = to_rgba(colour)
    if alpha == 0 or tuple(rgb) == to_rgb(NIGHT):
        return (*rgb, alpha)
    if max(rgb) == 0 or min(rgb) == 1:
        return (*to_rgb(NIGHT if min(rgb) == 1 else DAY), alpha)
    hue, lightness, saturation = rgb_to_hls(*rgb)
    while contrast(rgb) < LEAST_CONTRAST:
        lightness = 0.95 * lightness + 0.05
        rgb = list(hls_to_rgb(hue, lightness, saturation))
    return (*rgb, alpha)


def darken(figure: Any) -> None:
    """Turn the colours of lines, marks, areas and texts of a drawn figure into those for a dark ground."""
    from matplotlib.colors import to_rgba_array

    for artist in figure.findobj():
        for name in ("color", "markerfacecolor", "markeredgecolor", "facecolor", "edgecolor", "hatchcolor"):
            get, put = (getattr(artist, f"{verb}_{name}", None) for verb in ("get", "set"))
            colours = get() if get and put else "none"
            # an edge may have the colour of its area, "face"
            new = [on_dark(each) for each in to_rgba_array("none" if str(colours) == "face" else colours)]
            if put and new:
                put(new if len(new) > 1 else new[0])
