"""NumPy array files, read with a limit on their unpacked size and without pickled objects."""

from __future__ import annotations

import struct
import tokenize
import warnings
import zipfile
import zlib
from pathlib import Path
from typing import IO, Any

import numpy as np

# errors that NumPy and zipfile raise at a file that is damaged or of another format; callers must catch them all, since
# a parser of command lines would take EOFError for the end of the user's input
DAMAGED = (
    *([zipfile.lzma.LZMAError] if zipfile.lzma else []),  # type: ignore[attr-defined]  # some builds of Python lack lzma
    ArithmeticError, AttributeError, EOFError, LookupError, MemoryError, NotImplementedError, OSError, RuntimeError,
    SyntaxError, TypeError, ValueError, struct.error, tokenize.TokenError, zipfile.BadZipFile, zlib.error,
)  # fmt: skip


def load(file: str | Path | IO[bytes]) -> Any:
    """Load an array, or a .npz with several, as ``numpy.load`` returns it.

    Raises:
        One of ``DAMAGED``.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # NumPy's guesses about a damaged header
        return np.load(file, allow_pickle=False)


def npz(file: str | Path | IO[bytes], limit: int) -> dict[str, Any]:
    """Load the arrays of a .npz file by name.

    Args:
        file: path or open file.
        limit: the largest unpacked size of the file in bytes.
    Raises:
        ValueError: the file is larger, or contains objects other than plain arrays; or another of ``DAMAGED``.
    """
    with zipfile.ZipFile(file) as archive:
        size = sum(item.file_size for item in archive.infolist())
    if size > limit:
        raise ValueError(f"its unpacked size is {size:,} bytes; the limit is {limit:,}")
    if not isinstance(file, (str, Path)):
        file.seek(0)
    with warnings.catch_warnings(), load(file) as arrays:
        warnings.simplefilter("ignore")
        content = {name: arrays[name] for name in arrays.files}
    if others := [name for name, value in content.items() if not isinstance(value, np.ndarray)]:
        raise ValueError(f"it holds {others[0][:60]!r}, which is no array")
    return content
