"""Figures as small SVG files: text as text instead of outlines of letters, coordinates to a tenth of a point."""

from __future__ import annotations

import base64
import io
import re
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

from wpriv.errors import WprivError
from wpriv.files import durable_writes

MAX_BYTES = 300_000
COLOURS = 64  # of pictures within a figure that is too large
_METADATA = re.compile(r"<metadata>.*?</metadata>|<!--.*?-->", re.S)
_TAG = re.compile(r"<[^>]*>")
# a number with three digits and more behind the point, as in the arguments of a transformation
_LONG = re.compile(r"(?<=[(, ])-?\d+\.\d{3,}(?=[ ,)])")
_PICTURE = re.compile(r"(?<=data:image/png;base64,)[A-Za-z0-9+/=\s]+")


def write(draw: Callable[[Path], list[Path]], out: Path) -> list[Path]:
    """Draw figures into small files; none where there is nothing to draw.

    Args:
        draw: draws figures into a folder as SVG and returns the files, others among them.
    """
    from matplotlib import rc_context

    files = []
    with tempfile.TemporaryDirectory() as folder:
        try:
            with rc_context({"svg.fonttype": "none"}):
                pictures = draw(Path(folder))
        except WprivError:
            return []
        for path in pictures:
            if path.suffix == ".svg":
                files.append(out / path.name)
                durable_writes.replace(files[-1], small(path.read_text(encoding="utf-8")))
    return files


def small(picture: str) -> str:
    """Return an SVG file of matplotlib in fewer bytes; pictures in it are made coarser where it exceeds 300 kB."""
    text = shortened(picture)
    size = 1.0
    while len(text) > MAX_BYTES and size > 0.1 and _PICTURE.search(text):
        size /= 2
        text = _PICTURE.sub(partial(_coarser, size=size), shortened(picture))
    return text


def shortened(picture: str) -> str:
    """Return an SVG file without comments and metadata, and with shorter numbers and lines.

    Numbers are shortened within tags alone: those of texts, such as the values of a legend, are what the figure says.

    >>> shortened('<svg x="1.2345">\\n   <!-- a --> <path d="M 10.0625 -3.14159 "/></svg>')
    '<svg x="1.2">\\n<path d="M10.1 -3.1"/></svg>'
    """
    text = _METADATA.sub("", picture)
    text = re.sub(r'(?<= d=")[^"]*', lambda match: _path(match[0]), text)
    text = re.sub(r'(?<= [xy]=")-?\d+\.\d+(?=")', lambda match: _rounded(match[0]), text)
    text = _TAG.sub(lambda tag: _LONG.sub(lambda match: f"{float(match[0]):.2f}", tag[0]), text)
    return re.sub(r"\s*\n\s*", "\n", text).strip() + "\n" * picture.endswith("\n")


def _path(commands: str) -> str:
    """The commands of a path with coordinates to a tenth, steps that do not move left out."""
    text = re.sub(r"-?\d+\.\d+", lambda match: _rounded(match[0]), " ".join(commands.split()))
    text = re.sub(r"\s*([A-Za-z])\s*", r"\1", text)
    # the repeated step must end where the first one does: L1 30 is not the beginning of L1 300
    return re.sub(r"(L[^A-Za-z]+)\1+(?![^A-Za-z])", r"\1", text)


def _rounded(number: str) -> str:
    return f"{float(number):.1f}".removesuffix(".0")


def _coarser(match: re.Match[str], size: float) -> str:
    """A PNG in base64 with a part of its width and height, and fewer colours."""
    from PIL import Image

    picture = Image.open(io.BytesIO(base64.b64decode("".join(match[0].split())))).convert("RGB")
    width, height = (max(1, round(size * length)) for length in picture.size)
    content = io.BytesIO()
    picture.resize((width, height)).quantize(COLOURS).save(content, format="PNG", optimize=True)
    return base64.b64encode(content.getvalue()).decode("ascii")
