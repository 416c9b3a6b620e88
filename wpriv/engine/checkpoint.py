"""Checkpoints: everything from which a run goes on as if it had never stopped, written in one piece or not at all."""

from __future__ import annotations

import pickle
import struct
import warnings
import zipfile
import zlib
from pathlib import Path
from typing import Any

import torch

from wpriv.errors import MissingResource, UsageError
from wpriv.files import durable_writes

FORMAT = "wpriv.checkpoint/5"
# what every checkpoint and every model of this format holds, whatever was trained
FIELDS = {"identity": str, "run": int, "ledger": dict, "clear": bool, "weights": dict, "rows": str}
# torch reads a damaged file as far as it makes sense, and then raises whatever that leads to
DAMAGED = (
    ArithmeticError, AssertionError, AttributeError, EOFError, ImportError, LookupError, MemoryError, OSError, RuntimeError, TypeError,
    ValueError, pickle.PickleError, struct.error, zipfile.BadZipFile, zlib.error,
)  # fmt: skip


def save(path: Path, content: dict[str, Any]) -> None:
    """Write tensors and plain data in one piece: a crash leaves the old file or the new one.

    Raises:
        MissingResource: the file cannot be written.
    """
    # readable by its owner alone: a checkpoint holds the key of the noise
    durable_writes.replace(path, lambda file: torch.save({"format": FORMAT, **content}, file), mode=0o600)


def load(path: Path, device: torch.device | str = "cpu") -> dict[str, Any]:
    """Read a checkpoint; only tensors and plain data are ever made of a file, never code.

    Raises:
        UsageError: it is missing, damaged, or no checkpoint of wpriv. MissingResource: reading it is not permitted.
    """
    try:
        with path.open("rb") as file, warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch's guesses about a file that is none of its own
            stored = torch.load(file, map_location=device, weights_only=True)
    except FileNotFoundError:
        raise UsageError(f"{path} is missing; put it back, or begin again with --fresh") from None
    except PermissionError as error:
        raise MissingResource(f"{path} cannot be read: {error.strerror}. Allow reading it") from None
    except pickle.UnpicklingError:
        reason = "it holds something else than tensors and plain data"
        raise UsageError(
            f"the checkpoint {path} cannot be read: {reason}; put it back, or begin again with --fresh"
        ) from None
    except DAMAGED:
        raise UsageError(
            f"the checkpoint {path} is damaged or cut short; put it back, or begin again with --fresh"
        ) from None
    if not isinstance(stored, dict) or stored.get("format") != FORMAT:
        raise UsageError(
            f"{path} is no checkpoint of this version of wpriv (wanted {FORMAT}); begin again with --fresh"
        )
    wrong = [name for name, kind in FIELDS.items() if not isinstance(stored.get(name), kind)]
    if wrong or not {"lines", "digest"} <= stored["ledger"].keys():
        raise UsageError(
            f"the checkpoint {path} was changed: it lacks {', '.join(wrong) or 'its place in the ledger'}; put it back"
        )
    return stored
