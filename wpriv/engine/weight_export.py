"""Weights in the safetensors format, which other programs read without running code."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import safetensors.torch
import torch
from safetensors import SafetensorError

from wpriv.errors import Unsupported


def encode(weights: Mapping[str, Any], header: Mapping[str, str] | None = None) -> bytes:
    """Return the content of a safetensors file.

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
        return safetensors.torch.save(tensors, metadata=None if header is None else dict(header))
    except (KeyError, ValueError, RuntimeError, SafetensorError) as error:
        raise Unsupported(f"the format safetensors does not hold these tensors: {str(error)[:160]}") from None
