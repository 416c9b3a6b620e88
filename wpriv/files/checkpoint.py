"""Read and write checkpoints and models: tensors and plain data in one file, written in one piece or not at all."""

from __future__ import annotations

import io
import pickle
import warnings
import zipfile
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from wpriv.errors import MissingResource, UsageError
from wpriv.files import array_files, durable_writes

if TYPE_CHECKING:
    import torch

FORMAT = "wpriv.checkpoint/5"
Fields = dict[str, type]
# what files of this format hold, whatever was trained: every file, checkpoints and models, checkpoints and diagnostics
POSITION: Fields = {"identity": str, "run": int, "ledger": dict, "clear": bool}
WEIGHTS: Fields = {"weights": dict}
METRICS: Fields = {"rows": str}
# what torch raises for a damaged file, which it reads as far as it can
DAMAGED = (*array_files.DAMAGED, AssertionError, ImportError, pickle.PickleError)


def save(path: Path, content: dict[str, object]) -> None:
    """Write tensors and plain data in one piece: a crash leaves the old file or the new one."""
    import torch

    def write(file: IO[bytes]) -> None:
        try:
            torch.save({"format": FORMAT, **content}, file)
        except RuntimeError as error:
            # after a failed write torch still ends its archive, and reports that this fails
            raise (error.__context__ if isinstance(error.__context__, OSError) else error) from None

    # readable by its owner alone: a checkpoint holds the key of the noise
    durable_writes.replace(path, write, mode=0o600)


def load(path: Path, device: torch.device | str = "cpu", fields: Fields = POSITION | WEIGHTS) -> dict[str, Any]:
    """Read a checkpoint or a model; only tensors and plain data are made of a file, never code.

    Args:
        fields: what it must hold, by default what checkpoints and models have in common.
    Raises:
        UsageError: it is missing, damaged, or not a file of wpriv. MissingResource: reading it is not permitted.
    """
    import torch

    def read(file: IO[bytes]) -> object:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch warns of files that it did not write
            return torch.load(file, map_location=device, weights_only=True)

    return _read(path, read, fields)


def load_without_tensors(path: Path, fields: Fields = POSITION | WEIGHTS) -> dict[str, Any]:
    """Read the plain data of a checkpoint or a model, None in place of each tensor; loads no torch.

    Args and Raises: as ``load``; all of the file is read, so that damage is found here too.
    """

    def read(file: IO[bytes]) -> object:
        with zipfile.ZipFile(file) as archive:
            names = [name for name in archive.namelist() if name.endswith("/data.pkl")]
            if len(names) != 1 or archive.testzip() is not None:
                raise zipfile.BadZipFile("damaged")
            return _WithoutTensors(io.BytesIO(archive.read(names[0]))).load()

    return _read(path, read, fields)


class _WithoutTensors(pickle.Unpickler):
    """Makes plain data alone: whatever is of torch becomes None, and all other classes and functions are refused."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) == ("collections", "OrderedDict"):
            return OrderedDict
        if module.partition(".")[0] == "torch":
            return _none
        raise pickle.UnpicklingError(f"{module}.{name}")

    def persistent_load(self, pid: object) -> None:
        return None


def _none(*arguments: object) -> None:
    return None


def _read(path: Path, read: Callable[[IO[bytes]], object], fields: Fields) -> dict[str, Any]:
    again = "begin again with `fresh=True`"
    try:
        with path.open("rb") as file:
            stored = read(file)
    except FileNotFoundError:
        raise UsageError(f"{path} is missing; put it back, or {again}") from None
    except PermissionError as error:
        raise MissingResource(f"{path} cannot be read: {error.strerror}. Allow reading it") from None
    except pickle.UnpicklingError:
        reason = "it holds something other than tensors and plain data"
        raise UsageError(f"the checkpoint {path} cannot be read: {reason}; put it back, or {again}") from None
    except DAMAGED:
        raise UsageError(f"the checkpoint {path} is damaged or cut short; put it back, or {again}") from None
    if not isinstance(stored, dict) or stored.get("format") != FORMAT:
        raise UsageError(f"{path} is not a checkpoint of this version of wpriv (wanted {FORMAT}); {again}")
    return require(stored, path, fields)


def require(stored: dict[str, Any], path: Path, fields: Fields) -> dict[str, Any]:
    """Return the content of a file that holds some fields.

    Raises:
        UsageError: a field is missing, or of another type.
    """
    wrong = [name for name, kind in fields.items() if not isinstance(stored.get(name), kind)]
    if wrong or not {"lines", "digest"} <= stored["ledger"].keys():
        raise UsageError(
            f"the checkpoint {path} was changed: it lacks {', '.join(wrong) or 'its position in the ledger'}; "
            f"put it back"
        )
    return stored


def recipe_digest(identity: str) -> str:
    """The part of an identity that is of the recipe alone: the rest would let anyone test guesses of the records."""
    return identity.partition("-")[0]
