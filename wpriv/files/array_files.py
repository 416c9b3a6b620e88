"""NumPy's files of arrays, read with a limit on what they unpack to; only plain arrays are ever made of one, never code."""

from __future__ import annotations

import struct
import tokenize
import warnings
import zipfile
import zlib
from pathlib import Path
from typing import IO, Any

import numpy as np

# what NumPy and the zip format raise at a file that is damaged, or is something else; EOFError among them, which a parser of
# command lines takes for the end of the user's input
DAMAGED = (
    *([zipfile.lzma.LZMAError] if zipfile.lzma else []),  # type: ignore[attr-defined]  # not every Python has the module lzma
    ArithmeticError, AttributeError, EOFError, LookupError, MemoryError, NotImplementedError, OSError, RuntimeError, SyntaxError, TypeError,
    ValueError, struct.error, tokenize.TokenError, zipfile.BadZipFile, zlib.error,
)  # fmt: skip


def load(file: str | Path | IO[bytes]) -> Any:
    """An array, or a .npz with several, as ``numpy.load`` returns it.

    Raises:
        One of ``DAMAGED``.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # guesses about a damaged header
        return np.load(file, allow_pickle=False)


def npz(file: str | Path | IO[bytes], limit: int) -> dict[str, Any]:
    """The arrays of a .npz file by name.

    Args:
        limit: bytes that the arrays may have together.
    Raises:
        ValueError: the file holds more, or objects that are no plain arrays; or another of ``DAMAGED``.
    """
    with zipfile.ZipFile(file) as archive:
        size = sum(item.file_size for item in archive.infolist())
    if size > limit:
        raise ValueError(f"holds {size:,} bytes when unpacked, more than {limit:,}")
    if not isinstance(file, (str, Path)):
        file.seek(0)
    with warnings.catch_warnings(), load(file) as arrays:
        warnings.simplefilter("ignore")
        return {name: arrays[name] for name in arrays.files}
