"""Checkpoints: everything from which a run goes on as if it had never stopped, written in one piece or not at all."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import torch

from wpriv.errors import UsageError
from wpriv.train import durable

FORMAT = "wpriv.checkpoint/5"


def save(path: Path, content: dict[str, Any]) -> None:
    """Write tensors and plain data in one piece: a crash leaves the old file or the new one.

    Raises:
        MissingResource: the file cannot be written.
    """
    # readable by its owner alone: a checkpoint holds the key of the noise
    durable.replace(path, lambda file: torch.save({"format": FORMAT, **content}, file), mode=0o600)


def load(path: Path, device: torch.device | str = "cpu") -> dict[str, Any]:
    """Reads a checkpoint; only tensors and plain data are ever made of a file, never code.

    Raises:
        UsageError: it cannot be read, or is no checkpoint of wpriv.
    """
    try:
        found = torch.load(path, map_location=device, weights_only=True)
    except (OSError, RuntimeError, EOFError, ValueError, pickle.UnpicklingError) as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0][:160]
        raise UsageError(f"the checkpoint {path} cannot be read ({reason}); begin again with --fresh") from None
    if not isinstance(found, dict) or found.get("format") != FORMAT:
        raise UsageError(f"{path} is no checkpoint of this version of wpriv (wanted {FORMAT}); begin again with --fresh")
    return found
