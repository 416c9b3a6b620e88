"""Files of weights in the safetensors format: their header and the digest of their tensors, read without torch."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path

from wpriv.errors import UsageError, of_file


@dataclass(frozen=True)
class WeightFile:
    """What is known of a file of weights.

    Args:
        header: the metadata of its header, text by name. digest: see ``digest``. tensors: their number.
    """

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
