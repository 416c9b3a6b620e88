"""The files of local reports: a .npz with the noisy records, and the privacy statement as JSON and Markdown."""

from __future__ import annotations

import contextlib
import io
import json
import math
import os
import platform
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wpriv import randomness
from wpriv._version import __version__
from wpriv.accounting.budget import plausibility_warnings
from wpriv.core.kinds import Adjacency
from wpriv.errors import UsageError
from wpriv.files.durable_writes import LOCK, PART, locked, reported
from wpriv.numerics.numbers import shown, text
from wpriv.results import model
from wpriv.results.model import Json, Reports
from wpriv.training.local.local_mechanism import Plan
from wpriv.training.local.records import Records
from wpriv.training.reports import publication, render, words

UNIT = "every record by itself: all numbers of one row of the data"
LABELS_PUBLIC = "the labels: written unchanged, since --public-labels declares them public"


def statement(plan: Plan, records: Records, labels: bool) -> Json:
    """Return the statement of local reports as plain data. No part of it is computed from the values of the records.

    A checksum of them would let anyone test guesses about them, and so would the share of clipped records; neither is
    included.
    """
    mechanism, row = plan.mechanism, plan.row
    leaks = row.claim == "as-published"
    largest, unit = ("9.2", "standard deviations") if plan.p == 2 else ("44.4", "scales")
    gaps = randomness.chance_of_gaps(plan.p, plan.noise / plan.step)
    chance = text(min(math.prod(records.shape) * gaps, 1.0), up=True, digits=2)
    lists = render.sections(
        "report_lists.txt.j2",
        labels=labels,
        leaks=leaks,
        labels_public=LABELS_PUBLIC,
        generator=publication.GENERATOR,
        largest=largest,
        unit=unit,
        chance=chance,
    )
    first = [*(row.warnings[:1] if leaks else []), *([words.FIXED_SEED] if plan.seed is not None else [])]
    return {
        "schema": words.SCHEMA,
        "task": "privatize",
        "private": True,
        "unit": UNIT,
        "adjacency": row.process.adjacency,
        "adjacency_means": Adjacency(row.process.adjacency).meaning,
        "mechanism": mechanism.describe(),
        "noise": {
            mechanism.noise: plan.noise,
            "on": "each cosine coefficient" if plan.dct else "each number",
            "sensitivity": mechanism.sensitivity,
            "chosen_by": plan.formula,
            "grid": plan.step,
        },
        "clip": {
            "norm": f"l{plan.p}",
            "radius": plan.radius,
            "center": plan.center,
            "how": "scaled down onto the ball" if plan.p == 2 else "the nearest point of the ball",
            "nonnegative": plan.nonnegative,
            "bounds_from": plan.bounds_from or None,
            "domain": "orthonormal cosine transform (DCT-II)" if plan.dct else "as read",
        },
        "guarantees": [row.as_dict()],
        "delta": words.share(row.delta.safe, len(records.x)).model_dump(),
        "trust_model": lists["trust_model"],
        "publish": publication.of_reports(labels=labels, seed=plan.seed, leaks=leaks),
        **{key: lists[key] for key in ("covered", "not_covered", "not_assessed")},
        "warnings": list(dict.fromkeys([*first, *row.warnings, *plausibility_warnings(row, len(records.x))])),
        "seed": plan.seed,
        "versions": {"wpriv": __version__, "python": platform.python_version(), "numpy": np.__version__},
        "data": {
            "name": records.name,
            "records": len(records.x),
            "shape": list(records.shape),
            "dtype": plan.dtype,
            "read_as": list(records.notes),
        },
    }


def to_markdown(statement: Json) -> str:
    """Render the statement of local reports as Markdown."""
    reports = read(statement)
    data = reports.data
    return render.filled(
        "reports.md.j2",
        statement=reports,
        source=reports,
        title=data.name,
        facts=words.report_facts(reports),
        comparison=[],
        premises=reports.premises,
        data="; ".join([f"{data.records} records of {' x '.join(map(str, data.shape))}", *data.read_as]),
    )


def read(statement: Json) -> Reports:
    """Return the plain data of a statement as a record.

    Raises:
        UsageError: an entry is missing.
    """
    return model.checked(Reports, statement, "the statement of the reports", model.PRIVATISE_AGAIN)


Array = NDArray[Any]
_ZIPPED_AT = (1980, 1, 1, 0, 0, 0)  # the same for every file, so that the same seed gives the same bytes


Files = tuple[Path, Path, Path]  # of the records, of the statement, and of its Markdown


def files_at(path: Path) -> Files:
    """Return the paths for a .npz file; UsageError: its name has another ending, or one of the files exists."""
    if path.suffix != ".npz" or "\0" in str(path):
        raise UsageError(f"`out` must be a file ending in .npz; found {shown(str(path))}")
    files = path, path.with_suffix(".statement.json"), path.with_suffix(".statement.md")
    _refuse_existing(files)
    return files


def _refuse_existing(files: Files) -> None:
    for path in files:
        if os.path.lexists(path):
            raise UsageError(
                f"{path} exists and is not overwritten: the privacy spent on it cannot be recovered. "
                f"Name another file with `out`"
            )


def write(files: Files, small: dict[str, Array], header: Json, blocks: Iterator[Array], statement: Json) -> None:
    """Write all files, or none where writing fails or is interrupted."""
    records = files[0]
    busy = f"another process is writing {records}. Wait until it ends, or name another file with `out`"
    with locked(records.with_name(records.name + LOCK), busy):
        _refuse_existing(files)  # again, now that no other process can write them
        parts = [path.with_name(path.name + PART) for path in files]
        try:
            with reported(records):
                _write_arrays(parts[0], small, header, blocks)
                parts[1].write_text(json.dumps(statement, indent=2) + "\n", encoding="utf-8")
                parts[2].write_text(to_markdown(statement), encoding="utf-8")
                for part, path in zip(reversed(parts), reversed(files), strict=True):
                    os.replace(part, path)
        finally:
            for part in parts:
                with contextlib.suppress(OSError):
                    part.unlink()


def array_facts(plan: Plan, statement: Json) -> dict[str, Array]:
    """Return the facts that a user of the reports needs, as small arrays beside them."""
    mechanism, row = plan.mechanism, plan.row
    values: Json = {
        "mechanism": mechanism.name,
        mechanism.noise: plan.noise,
        "p": plan.p,
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


def _write_arrays(path: Path, small: dict[str, Array], header: Json, blocks: Iterator[Array]) -> None:
    """Write a .npz; the records block by block, so that they are never in memory as a whole."""
    descr = np.lib.format.dtype_to_descr(np.dtype(header["dtype"]))
    first = {"descr": descr, "fortran_order": False, "shape": header["shape"]}
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED, allowZip64=True) as archive:
        with archive.open(zipfile.ZipInfo("x.npy", _ZIPPED_AT), "w", force_zip64=True) as member:
            np.lib.format.write_array_header_1_0(member, first)  # type: ignore[no-untyped-call]
            for block in blocks:
                member.write(np.ascontiguousarray(block).data)
        for name, value in small.items():
            content = io.BytesIO()
            np.save(content, value, allow_pickle=False)
            archive.writestr(zipfile.ZipInfo(f"{name}.npy", _ZIPPED_AT), content.getvalue())
