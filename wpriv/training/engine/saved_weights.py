"""Weights in files: in the safetensors format, which other programs read without code, and of an earlier run."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
from safetensors import SafetensorError
from torch import nn

from wpriv.errors import Unsupported, UsageError
from wpriv.files import checkpoint


def encode(weights: Mapping[str, Any], header: Mapping[str, str] | None = None) -> bytes:
    """Return the content of a safetensors file; the same weights and header give the same bytes."""
    others = [name for name, value in weights.items() if not isinstance(value, torch.Tensor)]
    if others:
        raise Unsupported(f"the entry {others[0]!r} of the state_dict is no tensor")
    tensors = {name: value.detach().cpu().contiguous().clone() for name, value in weights.items()}
    try:
        return _in_order(safetensors.torch.save(tensors, metadata=None if header is None else dict(header)))
    except (KeyError, ValueError, RuntimeError, SafetensorError) as error:
        raise Unsupported(f"the format safetensors does not hold these tensors: {str(error)[:160]}") from None


def decode(content: bytes) -> dict[str, torch.Tensor]:
    """Return the tensors in the content of a safetensors file."""
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


# --- the weights of an earlier run in a folder, and the diagnostics of a finished one ---

CHECKPOINT, LEDGER, MODEL, DIAGNOSTICS = "checkpoint.pt", "ledger.jsonl", "model.pt", "diagnostics.pt"


def inherit(model: nn.Module | None, folder: Path, device: torch.device) -> tuple[str, dict[str, Any]]:
    """Load the weights in a folder into a model, if one is given; return name and content of their file."""
    path = folder / CHECKPOINT if (folder / CHECKPOINT).is_file() else folder / MODEL
    stored = checkpoint.load(path, device)
    if "divided" in stored:
        raise UsageError(
            f"the weights in {path} are divided among {stored['divided']} processes; finish this run with "
            f"`resume=True`, or begin again with `fresh=True`"
        )
    if model is None:
        return path.name, stored
    try:
        model.load_state_dict(stored["weights"])
    except RuntimeError as error:
        reason = str(error).splitlines()[-1].strip()
        raise UsageError(
            f"`fork=True` continues from the weights in {path}, which do not fit this model ({reason}); keep the model"
        ) from None
    return path.name, stored


def load_diagnostics(folder: Path, model: dict[str, Any]) -> dict[str, Any]:
    """Identity, metrics and distances of a finished run; earlier versions kept them in ``model``."""
    path = folder / DIAGNOSTICS
    if "rows" in model:
        return checkpoint.require(model, folder / MODEL, checkpoint.METRICS)
    stored = checkpoint.load(path, fields=checkpoint.POSITION | checkpoint.METRICS)
    if any(stored[key] != model[key] for key in checkpoint.POSITION if key != "identity"):
        raise UsageError(
            f"{path} is of another run than {folder / MODEL}; put the right one back, or begin again with `fresh=True`"
        )
    return stored
