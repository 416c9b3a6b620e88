"""Checkpoints of torch as plain data, without torch: numbers, text, lists and mappings; tensors are left out.

``torch.save`` writes a zip with one pickle in it. It is read by an unpickler that makes no object but those, and that
refuses whatever names another function or class, so that no code of a file runs here.
"""

from __future__ import annotations

import io
import pickle
import struct
import zipfile
from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path
from typing import Any, ClassVar

from wpriv.errors import UsageError, of_file
from wpriv.files import shown_path

# of the pickle, which holds no tensors
MAX_BYTES = 16_000_000
# packages whose classes become a placeholder: what they hold is no number of a guarantee
PLACEHOLDERS = ("torch", "numpy", "opacus", "lightning", "pytorch_lightning", "lightning_fabric", "collections")
# types of Python that do nothing when they are called, and may be in a checkpoint
TYPES = ("set", "frozenset", "complex", "bytearray", "slice", "range", "dict", "list", "tuple", "int", "float", "str")
# types of keys: the hash of nested tuples takes a time that doubles with each level
KEYS = (str, int, float, bytes, type(None))
_FORMATS = {"f8": "d", "f4": "f", "i8": "q", "i4": "i", "u8": "Q", "u4": "I"}


class Placeholder:
    """Stands for an object that is not made: it takes all that a pickle does to one, and keeps nothing."""

    def __init__(self, *arguments: object, **more: object) -> None:
        self.arguments = arguments

    def __setstate__(self, state: object) -> None:
        return None

    def __call__(self, *arguments: object) -> Placeholder:
        return Placeholder()

    def __setitem__(self, key: object, value: object) -> None:
        return None

    def append(self, value: object) -> None:
        return None

    def extend(self, values: object) -> None:
        return None


def _scalar(dtype: object, raw: object = b"") -> object:
    """A number of numpy: its format and its bytes."""
    arguments = getattr(dtype, "arguments", ())
    code = _FORMATS.get(str(arguments[0])) if arguments else None
    if code is None or not isinstance(raw, bytes) or len(raw) != struct.calcsize(code):
        return Placeholder()
    return struct.unpack(f"<{code}", raw)[0]


def _encode(characters: object, encoding: object = "latin1") -> object:
    """The bytes of a number of numpy, which old pickles write as text."""
    latin = encoding == "latin1" and isinstance(characters, str) and all(ord(each) < 256 for each in characters)
    return str(characters).encode("latin1") if latin else Placeholder()


class _Refusal(pickle.UnpicklingError):
    """Something that no checkpoint of a training holds."""


class _Mapping(dict[object, object]):
    """An OrderedDict, filled by the operations of a pickle alone."""

    def __init__(self, *arguments: object) -> None:
        super().__init__()

    def __setstate__(self, state: object) -> None:
        return None


_Base: Any = pickle._Unpickler  # type: ignore[attr-defined]  # that in C allocates whatever a place in its memo asks for


class _Restricted(_Base):  # type: ignore[misc]
    """Makes plain data alone; see the module's docstring."""

    def find_class(self, module: str, name: str) -> object:
        if (module, name) == ("collections", "OrderedDict"):
            return _Mapping
        package = module.partition(".")[0]
        if package == "numpy" and name == "scalar":
            return _scalar
        if (module, name) == ("_codecs", "encode"):
            return _encode
        if package in PLACEHOLDERS or (package == "builtins" and name in TYPES):
            return Placeholder
        raise _Refusal(f"{module}.{name}"[:100])

    def persistent_load(self, pid: object) -> Placeholder:
        return Placeholder()

    def set_items(self) -> None:
        """Put the items above the mark into the mapping below it; only plain keys are hashed."""
        values = self.pop_mark()
        self.put(zip(values[::2], values[1::2], strict=True))

    def set_item(self) -> None:
        value, key = self.stack.pop(), self.stack.pop()
        self.put([(key, value)])

    def put(self, pairs: Iterable[tuple[object, object]]) -> None:
        for key, value in pairs:
            if not isinstance(key, KEYS):
                raise _Refusal(f"a key that is a {type(key).__name__}")
            self.stack[-1][key] = value

    def refuse(self) -> None:
        raise _Refusal("a set")

    dispatch: ClassVar[dict[int, Any]] = {
        **_Base.dispatch,
        **{pickle.SETITEM[0]: set_item, pickle.SETITEMS[0]: set_items},
        **dict.fromkeys((pickle.DICT[0], pickle.ADDITEMS[0], pickle.FROZENSET[0]), refuse),
    }


def is_checkpoint(path: Path, key: str) -> bool:
    """Tell whether a file is a checkpoint of torch in whose pickle a key stands; False for what cannot be read."""
    try:
        if not path.is_file() or not zipfile.is_zipfile(path):
            return False
        return key.encode() in _start(path)
    except (OSError, ValueError, UsageError, zipfile.BadZipFile, NotImplementedError, RuntimeError):
        return False


def _pickle(path: Path) -> bytes:
    """The bytes of the pickle of a checkpoint; UsageError for more than ``MAX_BYTES``."""
    content = _start(path)
    if len(content) > MAX_BYTES:
        raise UsageError(
            f"{shown_path(path)}: its data.pkl has more than {MAX_BYTES:,} bytes, and that of a training far fewer. "
            f"Save the state of the accountant alone"
        )
    return content


def _start(path: Path) -> bytes:
    """The bytes of the pickle of a checkpoint, at most one more than ``MAX_BYTES``; UsageError where there is none."""
    with zipfile.ZipFile(path) as archive:
        names = [name for name in archive.namelist() if name == "data.pkl" or name.endswith("/data.pkl")]
        if len(names) != 1:
            raise UsageError(f"{shown_path(path)}: a checkpoint of torch has one data.pkl; found {len(names)}")
        with archive.open(names[0]) as file:
            return file.read(MAX_BYTES + 1)


def plain(path: Path) -> object:
    """The plain data of a checkpoint.

    Raises:
        UsageError: it is damaged, too large, or holds something else than tensors and plain data.
        MissingResource: it cannot be read.
    """
    try:
        about = path.stat()
    except OSError as error:
        raise of_file(error, path, "read", "give the path of a checkpoint") from None
    return _plain(path, about.st_mtime_ns, about.st_size)


@lru_cache(maxsize=2)
def _plain(path: Path, modified: int, size: int) -> object:
    try:
        return _Restricted(io.BytesIO(_pickle(path))).load()
    except _Refusal as error:
        raise UsageError(
            f"{shown_path(path)} holds {error}, which is neither a tensor nor plain data, and is not loaded. Save the "
            f"state of the accountant alone: torch.save({{'privacy_accountant_state_dict': ...}}, file)"
        ) from None
    except OSError as error:
        raise of_file(error, path, "read", "give the path of a checkpoint") from None
    except (pickle.UnpicklingError, zipfile.BadZipFile, EOFError, ValueError, LookupError, TypeError) as error:
        raise UsageError(f"{shown_path(path)} is damaged, or no checkpoint of torch ({str(error)[:80]})") from None
    except (AttributeError, ImportError, MemoryError, NotImplementedError, OverflowError, RecursionError, RuntimeError):
        raise UsageError(f"{shown_path(path)} is damaged, or no checkpoint of torch") from None
