"""MATLAB files, before version 7.3."""

from __future__ import annotations

import io
import math
import zlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from wpriv.data._dataset import Array
from wpriv.data._files import MAX_BYTES
from wpriv.errors import MissingResource

MAX_NUMBERS = MAX_BYTES // 8  # of one array


def parse(path: Path, raw: bytes, names: Sequence[str] = ()) -> dict[str, Array]:
    """Return the numeric arrays of a MATLAB file by name: those of ``names``, or all; sparse ones with their zeros.

    Raises:
        MissingResource: it is damaged or of version 7.3, lacks one of ``names``, or has an array beyond
            ``MAX_NUMBERS``.
    """
    from scipy.io import loadmat, whosmat
    from scipy.io.matlab import MatReadError
    from scipy.sparse import issparse

    if raw[:4] == b"\x89HDF" or b"MATLAB 7.3" in raw[:128]:
        raise MissingResource(f"{path}: a MATLAB 7.3 file; save it again with save(..., '-v7') or as .npz")
    try:
        sizes: dict[str, int] = {name: math.prod(shape) for name, shape, _ in whosmat(io.BytesIO(raw))}
        if any(name not in sizes for name in names):
            raise MissingResource(f"{path}: wanted the arrays {', '.join(names)}; found {', '.join(sizes) or 'none'}")
        if max((sizes[name] for name in (names or sizes)), default=0) > MAX_NUMBERS:
            raise MissingResource(
                f"{path}: an array has more than {MAX_NUMBERS:,} numbers, the limit; check that it is the right file"
            )
        arrays = loadmat(io.BytesIO(raw), variable_names=list(names) or None)
    except (
        MatReadError,
        ValueError,
        TypeError,
        KeyError,
        IndexError,
        NotImplementedError,
        EOFError,
        OSError,
        zlib.error,
    ) as error:
        reason = str(error)[:120] or type(error).__name__
        raise MissingResource(f"{path}: not a complete MATLAB file ({reason})") from None
    dense = {name: value.toarray() if issparse(value) else value for name, value in arrays.items()}
    return {name: dense[name] for name in sizes if isinstance(dense.get(name), np.ndarray)}
