"""Read the weights of an earlier run in a folder, and the diagnostics of a finished one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import nn

from wpriv.engine import checkpoint
from wpriv.errors import UsageError

CHECKPOINT, LEDGER, MODEL, DIAGNOSTICS = "checkpoint.pt", "ledger.jsonl", "model.pt", "diagnostics.pt"


def inherit(model: nn.Module | None, folder: Path, device: torch.device) -> tuple[str, dict[str, Any]]:
    """Load the weights in a folder into a model, if one is given; return name and content of the file that holds them.

    Raises:
        UsageError: they do not fit the model, or cannot be read.
    """
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
    """Return the identity, metrics and observed distances of a finished run.

    Args:
        model: the content of ``model.pt`` in that folder. Earlier versions kept its diagnostics there.
    Raises:
        UsageError: the diagnostics are missing, cannot be read, or are of another run than the model.
    """
    path = folder / DIAGNOSTICS
    if "rows" in model:
        return checkpoint.require(model, folder / MODEL, checkpoint.METRICS)
    stored = checkpoint.load(path, fields=checkpoint.POSITION | checkpoint.METRICS)
    if any(stored[key] != model[key] for key in checkpoint.POSITION if key != "identity"):
        raise UsageError(
            f"{path} is of another run than {folder / MODEL}; put the right one back, or begin again with `fresh=True`"
        )
    return stored
