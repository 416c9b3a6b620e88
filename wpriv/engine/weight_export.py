"""Weights in the safetensors format, which other programs read without running code."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import safetensors.torch
import torch
from safetensors import SafetensorError

from wpriv.errors import Unsupported


def encode(weights: Mapping[str, Any], header: Mapping[str, str] | None = None) -> bytes:
    """Return the content of a safetensors file; the same weights and header give the same bytes.

    Args:
        weights: a ``state_dict``; tensors that share memory are written once each.
        header: metadata, text by name.
    Raises:
        Unsupported: an entry is no tensor, or of a type that the format does not have.
    """
    others = [name for name, value in weights.items() if not isinstance(value, torch.Tensor)]
    if others:
        raise Unsupported(f"the entry {others[0]!r} of the state_dict is no tensor")
    tensors = {name: value.detach().cpu().contiguous().clone() for name, value in weights.items()}
    try:
        return _in_order(safetensors.torch.save(tensors, metadata=None if header is None else dict(header)))
    except (KeyError, ValueError, RuntimeError, SafetensorError) as error:
        raise Unsupported(f"the format safetensors does not hold these tensors: {str(error)[:160]}") from None


def decode(content: bytes) -> dict[str, torch.Tensor]:
    """Return the tensors in the content of a safetensors file.

    Raises:
        Unsupported: it is damaged, or in another format.
    """
    try:
        return safetensors.torch.load(content)
    except SafetensorError as error:
        raise Unsupported(f"it is no safetensors file: {str(error)[:160]}") from None


def metadata(content: bytes) -> dict[str, str]:
    """Return the metadata, text by name, in the content of a safetensors file that ``decode`` accepts."""
    size = int.from_bytes(content[:8], "little")
    entries: dict[str, str] = json.loads(content[8 : 8 + size]).get("__metadata__", {})
    return entries


def _in_order(content: bytes) -> bytes:
    """The content with its metadata in the order of their names, which the library leaves to chance.

    The format: the length of the header in eight bytes, the header as JSON, the numbers at multiples of eight bytes.
    """
    size = int.from_bytes(content[:8], "little")
    header = json.loads(content[8 : 8 + size])
    header |= {key: dict(sorted(value.items())) for key, value in header.items() if key == "__metadata__"}
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text + content[8 + size :]
