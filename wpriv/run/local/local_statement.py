"""The privacy statement of local reports: .statement.json as plain data, and .statement.md."""

from __future__ import annotations

import math
import platform
from typing import Any

import numpy as np

from wpriv._version import __version__
from wpriv.core.adjacency import Adjacency
from wpriv.numerics.safe_rounding import text
from wpriv.randomness import quantile_noise
from wpriv.run.accounting.plausibility import plausibility_warnings
from wpriv.run.local.mechanism_plan import Plan
from wpriv.run.local.records import Records
from wpriv.run.results import model, publication, render, words
from wpriv.run.results.model import Reports

UNIT = "every record by itself: all numbers of one row of the data"
LABELS_PUBLIC = "the labels: written unchanged, since --public-labels declares them public"


def statement(plan: Plan, records: Records, labels: bool) -> dict[str, Any]:
    """Return the statement of local reports as plain data. No part of it is computed from the values of the records.

    A checksum of them would let anyone test guesses about them, and so would the share of clipped records; neither is
    included.

    Args:
        labels: the labels are published with the reports.
    """
    calibrated = plan.calibrated
    mechanism, row = calibrated.mechanism, calibrated.row
    largest, unit = ("9.2", "standard deviations") if calibrated.p == 2 else ("44.4", "scales")
    gaps = quantile_noise.chance_of_gaps(calibrated.p, calibrated.noise / plan.step)
    chance = text(min(math.prod(records.shape) * gaps, 1.0), up=True, digits=2)
    lists = render.sections(
        "report_lists.txt.j2",
        labels=labels,
        labels_public=LABELS_PUBLIC,
        generator=publication.GENERATOR,
        largest=largest,
        unit=unit,
        chance=chance,
    )
    fixed_seed = [words.FIXED_SEED] if plan.seed is not None else []
    return {
        "schema": words.SCHEMA,
        "task": "privatize",
        "private": True,
        "unit": UNIT,
        "adjacency": row.process.adjacency,
        "adjacency_means": Adjacency(row.process.adjacency).meaning,
        "mechanism": mechanism.describe(),
        "noise": {
            mechanism.noise: calibrated.noise,
            "on": "each cosine coefficient" if plan.dct else "each number",
            "sensitivity": mechanism.sensitivity,
            "chosen_by": calibrated.formula,
            "grid": plan.step,
        },
        "clip": {
            "norm": f"l{calibrated.p}",
            "radius": plan.radius,
            "center": plan.center,
            "how": "scaled down onto the ball" if calibrated.p == 2 else "the nearest point of the ball",
            "nonnegative": calibrated.nonnegative,
            "bounds_from": plan.bounds_from or None,
            "domain": "orthonormal cosine transform (DCT-II)" if plan.dct else "as read",
        },
        "guarantees": [row.as_dict()],
        "delta": words.share(row.delta.safe, len(records.x)).model_dump(),
        "trust_model": lists["trust_model"],
        "publish": publication.of_reports(labels=labels, seed=plan.seed),
        **{key: lists[key] for key in ("covered", "not_covered", "not_assessed")},
        "warnings": list(dict.fromkeys([*fixed_seed, *row.warnings, *plausibility_warnings(row, len(records.x))])),
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


def to_markdown(statement: dict[str, Any]) -> str:
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


def read(statement: dict[str, Any]) -> Reports:
    """Return the plain data of a statement as a record.

    Raises:
        UsageError: an entry is missing.
    """
    return model.checked(Reports, statement, "the statement of the reports", model.PRIVATISE_AGAIN)
