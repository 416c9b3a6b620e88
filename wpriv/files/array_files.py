"""Files of NumPy arrays and of weights, read without running code."""

from __future__ import annotations

import hashlib
import json
import struct
import tokenize
import warnings
import zipfile
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np

from wpriv.errors import UsageError, of_file

# errors that NumPy and zipfile raise at a file that is damaged or of another format; callers must catch them all, since
# a parser of command lines would take EOFError for the end of the user's input
DAMAGED = (
    *([zipfile.lzma.LZMAError] if zipfile.lzma else []),  # type: ignore[attr-defined]  # some builds of Python lack lzma
    ArithmeticError, AttributeError, EOFError, LookupError, MemoryError, NotImplementedError, OSError, RuntimeError,
    SyntaxError, TypeError, ValueError, struct.error, tokenize.TokenError, zipfile.BadZipFile, zlib.error,
)  # fmt: skip


def load(file: str | Path | IO[bytes]) -> Any:
    """Load an array, or a .npz with several, as ``numpy.load`` returns it, or raise one of ``DAMAGED``."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # NumPy's guesses about a damaged header
        return np.load(file, allow_pickle=False)


def npz(file: str | Path | IO[bytes], limit: int) -> dict[str, Any]:
    """Load the arrays of a .npz file by name."""
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


# Files of weights in the safetensors format: their header and the digest of their tensors, read without torch.


@dataclass(frozen=True)
class WeightFile:
    """What is known of a file of weights: metadata of its header, ``digest``, and number of tensors."""

    header: dict[str, str]
    digest: str
    tensors: int


def digest(content: bytes) -> str:
    """Return the SHA-256 of the tensors in the content of a safetensors file, whatever its header says of them.

    Hashed are, in the order of the names, a line of JSON with name, type and shape, and the bytes of the numbers.

    Raises:
        safetensors.SafetensorError: the content is damaged, or in another format.
    """
    return _digest(content)[0]


def read(path: Path) -> WeightFile:
    """Read the header of a file of weights and the digest of its tensors.

    Raises:
        UsageError: it is damaged, or no safetensors file. MissingResource: it is missing, or cannot be read.
    """
    from safetensors import SafetensorError, safe_open

    try:
        value, count = _digest(path.read_bytes())
        with safe_open(str(path), framework="numpy") as file:
            header = file.metadata() or {}
    except OSError as error:
        raise of_file(error, path, "read", "put it back") from None
    except SafetensorError as error:
        raise UsageError(f"{path} cannot be read as a safetensors file: {str(error)[:160]}") from None
    return WeightFile(header, value, count)


def _digest(content: bytes) -> tuple[str, int]:
    """The digest, and the number of tensors."""
    from safetensors import deserialize

    total = hashlib.sha256()
    tensors = sorted(deserialize(content))  # type: ignore[no-untyped-call]
    for name, tensor in tensors:
        total.update(json.dumps([name, tensor["dtype"], list(tensor["shape"])]).encode() + b"\n")
        total.update(tensor["data"])
    return total.hexdigest(), len(tensors)
