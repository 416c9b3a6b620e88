"""Pictures as arrays of bytes: a square from the middle of each, resized."""

from __future__ import annotations

import struct
from typing import Any

import numpy as np

from wpriv.data._dataset import Array
from wpriv.errors import FaultyRecords

MAX_PIXELS = 50_000_000  # of one picture
MORE_THAN_BYTES = ("I", "F")  # the first letters of Pillow's modes with more than 8 bits a channel


def square(image: Any, place: str, *, size: int, grey: bool, crop: int = 0) -> Array:
    """Return the square in the middle of a picture, upright and resized, as [1 or 3, size, size] bytes.

    Args:
        image: of Pillow, not loaded yet. place: of the picture, for messages. crop: side of the square; 0 takes the
            largest.
    Raises:
        FaultyRecords: it has too many pixels, or too few for the crop; or more than 8 bits a channel, which Pillow
            would cut to the largest byte instead of scaling them.
        What Pillow raises at a damaged file.
    """
    from PIL import Image, ImageOps

    if image.width * image.height > MAX_PIXELS:
        raise FaultyRecords(f"{place}: has {image.width} x {image.height} pixels; at most {MAX_PIXELS:,} are read")
    if image.mode.startswith(MORE_THAN_BYTES):
        raise FaultyRecords(
            f"{place}: has more than 8 bits a channel (mode {image.mode}); save it with 8, scaled to 0 to 255"
        )
    try:
        image = ImageOps.exif_transpose(image)  # as cameras say that it is to be turned
    except (KeyError, TypeError, struct.error, ZeroDivisionError) as error:
        raise ValueError(f"damaged EXIF data: {error}") from None
    side = crop or min(image.size)
    if side > min(image.size):
        raise FaultyRecords(
            f"{place}: {image.width} x {image.height} pixels are too few for a crop of {side}; choose a smaller crop"
        )
    left, top = (image.width - side) // 2, (image.height - side) // 2
    # cropped before it is resized, so that the filter uses no pixels beyond the edges
    part = image.convert("L" if grey else "RGB").crop((left, top, left + side, top + side))
    pixels = np.asarray(part.resize((size, size), Image.Resampling.BILINEAR), np.uint8)
    return pixels[None] if grey else pixels.transpose(2, 0, 1)
