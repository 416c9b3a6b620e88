"""Figures whose files are blank: rendering takes half the time of a small training, and few tests look at the result.

The panels are drawn, and what they refuse is refused still; the layout and the rendering are left out. The tests of the
folders in ``RENDERED``, and those marked ``figures``, have real files, as have commands in processes of their own.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from wpriv.files import durable_writes
from wpriv.results import figure_layout

RENDERED = ("figures", "results", "training/reports", "papers/reproduction")
TESTS = Path(__file__).parent
_PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAAAAAA6fptVAAAACklEQVR4nGP4DwABAQEAsTj2FAAAAABJRU5ErkJggg=="
BLANK = {
    "png": base64.b64decode(_PNG),
    "pdf": b"%PDF-1.4\n%%EOF\n",
    "svg": b'<svg xmlns="http://www.w3.org/2000/svg" width="1" height="1"/>\n',
}
_finish, _render = figure_layout.finish, figure_layout.save


def finish(figure: Any, panels: object, columns: int, style: object) -> None:
    """Leave out the layout, which draws the figure once; the arguments are those of ``figure_layout.finish``."""


def save(figure: Any, out: Path, formats: Sequence[str], stem: str) -> list[Path]:
    """Write a blank file for each format; the arguments are those of ``figure_layout.save``."""
    durable_writes.make_folder(out)
    files = [out / f"{stem}.{kind}" for kind in formats]
    for path in files:
        durable_writes.replace(path, BLANK[path.suffix[1:]])
    return files


def set_rendering(item: pytest.Item) -> None:
    """Choose between real and blank figures for a test and the fixtures that are set up for it."""
    folder = item.path.relative_to(TESTS).as_posix() if item.path.is_relative_to(TESTS) else ""
    is_real = folder.startswith(RENDERED) or item.get_closest_marker("figures") is not None
    figure_layout.finish, figure_layout.save = (_finish, _render) if is_real else (finish, save)
