"""Checkpoints: everything from which a run goes on as if it had never stopped, written in one piece or not at all."""

from __future__ import annotations

import os
import pickle
from pathlib import Path
from typing import Any

import torch

from wpriv.errors import UsageError

FORMAT = "wpriv.checkpoint/2"


def save(path: Path, content: dict[str, Any]) -> None:
    """Writes tensors and plain data beside ``path``, forces them to disk, and renames: a crash leaves the old file or the new one."""
    part = path.with_name(path.name + ".part")
    # the file may hold the key of the noise: it is nobody else's business
    descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        torch.save({"format": FORMAT, **content}, file)
        file.flush()
        os.fsync(file.fileno())
    os.replace(part, path)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


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
