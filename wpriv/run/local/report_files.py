"""The files of local reports: a .npz with the noisy records, and the privacy statement beside it."""

from __future__ import annotations

import contextlib
import io
import json
import os
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from wpriv.errors import UsageError
from wpriv.files.durable_writes import PART, reported
from wpriv.files.file_lock import LOCK, locked
from wpriv.numerics.parse_numbers import shown
from wpriv.run.local import local_statement
from wpriv.run.local.mechanism_plan import Plan

Array = NDArray[Any]
_ZIPPED_AT = (1980, 1, 1, 0, 0, 0)  # the same for every file, so that the same seed gives the same bytes


@dataclass(frozen=True)
class ReportFiles:
    """The paths of the records, of the statement and of its Markdown; none of them exists before it is written."""

    records: Path
    statement: Path
    markdown: Path

    @classmethod
    def at(cls, path: Path) -> ReportFiles:
        """Return the paths for a .npz file.

        Raises:
            UsageError: the name has another ending, or one of the files exists.
        """
        if path.suffix != ".npz" or "\0" in str(path):
            raise UsageError(f"`out` must be a file ending in .npz; found {shown(str(path))}")
        files = cls(path, path.with_suffix(".statement.json"), path.with_suffix(".statement.md"))
        files.refuse_existing()
        return files

    def paths(self) -> tuple[Path, ...]:
        return (self.records, self.statement, self.markdown)

    def refuse_existing(self) -> None:
        """Raise UsageError where one of the files exists."""
        for path in self.paths():
            if os.path.lexists(path):
                raise UsageError(
                    f"{path} exists and is not overwritten: the privacy spent on it cannot be recovered. "
                    f"Name another file with `out`"
                )

    def write(self, small: dict[str, Array], reports: Reports, statement: dict[str, Any]) -> None:
        """Write all files, or none where writing fails or is interrupted.

        Args:
            small: arrays beside the records.
        """
        busy = f"another process is writing {self.records}. Wait until it ends, or name another file with `out`"
        with locked(self.records.with_name(self.records.name + LOCK), busy):
            self.refuse_existing()  # again, now that no other process can write them
            parts = [path.with_name(path.name + PART) for path in self.paths()]
            try:
                with reported(self.records):
                    _write_arrays(parts[0], small, reports)
                    parts[1].write_text(json.dumps(statement, indent=2) + "\n", encoding="utf-8")
                    parts[2].write_text(local_statement.to_markdown(statement), encoding="utf-8")
                    for part, path in zip(reversed(parts), reversed(self.paths()), strict=True):
                        os.replace(part, path)
            finally:
                for part in parts:
                    with contextlib.suppress(OSError):
                        part.unlink()


@dataclass(frozen=True)
class Reports:
    """Noisy records in blocks, with the shape and dtype of all of them together."""

    shape: tuple[int, ...]
    dtype: str
    blocks: Iterator[Array]


def facts(plan: Plan, statement: dict[str, Any]) -> dict[str, Array]:
    """Return the facts that a user of the reports needs, as small arrays beside them."""
    mechanism, row = plan.calibrated.mechanism, plan.calibrated.row
    values: dict[str, Any] = {
        "mechanism": mechanism.name,
        mechanism.noise: plan.calibrated.noise,
        "p": plan.calibrated.p,
        "radius": plan.radius,
        "center": plan.center,
        "epsilon": row.epsilon.safe,
        "delta": row.delta.safe,
        "grid": plan.step,
        "domain": "dct" if plan.dct else "as read",
        "statement": json.dumps(statement),
    }
    arrays = {name: np.array(value) for name, value in values.items()}
    return arrays if plan.bounds is None else {**arrays, "bounds": plan.bounds}


def _write_arrays(path: Path, small: dict[str, Array], reports: Reports) -> None:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED, allowZip64=True) as archive:
        with archive.open(zipfile.ZipInfo("x.npy", _ZIPPED_AT), "w", force_zip64=True) as member:
            _write_blocks(member, reports)
        for name, value in small.items():
            content = io.BytesIO()
            np.save(content, value, allow_pickle=False)
            archive.writestr(zipfile.ZipInfo(f"{name}.npy", _ZIPPED_AT), content.getvalue())


def _write_blocks(file: IO[bytes], reports: Reports) -> None:
    """Write a .npy of a known shape block by block, so that it is never in memory as a whole."""
    descr = np.lib.format.dtype_to_descr(np.dtype(reports.dtype))
    header = {"descr": descr, "fortran_order": False, "shape": reports.shape}
    np.lib.format.write_array_header_1_0(file, header)  # type: ignore[no-untyped-call]
    for block in reports.blocks:
        file.write(np.ascontiguousarray(block).data)
