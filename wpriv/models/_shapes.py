"""Shapes of examples and widths of layers, checked without torch."""

from __future__ import annotations

from collections.abc import Sequence

from wpriv.errors import UsageError

MAX_WIDTH = 10**6


def image_channels(name: str, shape: Sequence[int], side: int | None = None) -> int:
    """Return the number of channels of images [C, H, W], which must be ``side`` pixels wide and high where it is given.

    Raises:
        UsageError: the examples have another shape; the message names the model ``name``.
    """
    if len(shape) != 3 or min(shape) < 1 or (side is not None and tuple(shape[1:]) != (side, side)):
        expected = "[C, H, W]" if side is None else f"[C, {side}, {side}]"
        raise UsageError(
            f"{name} takes images of shape {expected}; found examples of shape {list(shape)}. "
            "Choose another model or data set"
        )
    return shape[0]


def parse_widths(name: str, text: str) -> list[int]:
    """Return the units of hidden layers, which users write as ``128-64-64``.

    Raises:
        UsageError: ``text`` is not of this form; the message names the model ``name``.
    """
    parts = text.split("-")
    if not all(part.isdecimal() and 1 <= int(part) <= MAX_WIDTH for part in parts):
        raise UsageError(
            f"{name}: widths must be whole numbers separated by dashes, as in 128-64-64; found {text[:40]!r}"
        )
    return [int(part) for part in parts]
