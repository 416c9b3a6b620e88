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
from wpriv.run.results import privacy_statement, publication

UNIT = "every record by itself: all numbers of one row of the data"
COVERED = [
    "each report by itself, also against an adversary who knows all other records",
    "everything computed from the reports, such as a training on them: post-processing, which has no further cost",
]
NOT_COVERED = [
    "the number of records, their order and their shape",
    "several records of one person: their eps add up, and so do those of further reports from the same records",
    "the choice of radius, mechanism and transform, if it was made by looking at these records",
]
LABELS_PUBLIC = "the labels: written unchanged, since --public-labels declares them public"
NOT_ASSESSED = [
    f"the generator: noise is {publication.GENERATOR}; 64 bits a number are turned into noise by inversion in float64; "
    "probabilities are off by about 2^-64 each, magnitudes end at {largest} {unit}, and far out not every point of the "
    "grid is reached. A number there may exclude some records; that one of a report is has a chance of about {chance}, "
    "which is in no delta (also not in that of pure DP)",
    "side channels: run time, memory, error messages, other programs that read the records",
]


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
    fixed_seed = [privacy_statement.FIXED_SEED] if plan.seed is not None else []
    return {
        "schema": privacy_statement.SCHEMA,
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
        "delta": privacy_statement.share(row.delta.safe, len(records.x)),
        "trust_model": privacy_statement.LOCAL,
        "publish": publication.of_reports(labels=labels, seed=plan.seed),
        "covered": COVERED,
        "not_covered": NOT_COVERED + ([LABELS_PUBLIC] if labels else []),
        "not_assessed": [line.format(largest=largest, unit=unit, chance=chance) for line in NOT_ASSESSED],
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


def headline(statement: dict[str, Any]) -> str:
    """Return the guarantee in words: 'eps = 34.9995 at delta = 0.0001 for every record by itself, exact by pld'."""
    row = statement["guarantees"][0]
    bracket = privacy_statement.bracket(row)
    ends = f" {bracket}" if bracket else ""
    pure = " (pure DP)" if row["delta"] == 0 else ""
    guarantee = f"eps = {text(row['epsilon'], up=True)} at delta = {text(row['delta'], up=True)}{pure}"
    return f"{guarantee} for every record by itself, {row['claim']} by {row['accountant']}{ends}"


def facts(statement: dict[str, Any]) -> list[tuple[str, str]]:
    """Return the other facts of a statement as names and one-line texts."""
    noise, clip, data, delta = statement["noise"], statement["clip"], statement["data"], statement.get("delta")
    parameter = "sigma" if "sigma" in noise else "scale"
    distribution = "Gauss" if parameter == "sigma" else "Laplace"
    center = f" about {clip['center']:g}" if clip["center"] else ""
    bounds = f", after each number was clamped to {clip['bounds_from']}" if clip["bounds_from"] else ""
    floor = ", after negative numbers became 0" if clip["nonnegative"] else ""
    ball = f"to an {clip['norm']} norm of {clip['radius']:g}{center}, exactly, {clip['how']}"
    amount = f"{distribution}, {parameter} {noise[parameter]:g} on {noise['on']}"
    rows = {
        "protected": statement["unit"],
        "neighbours": f"{statement['adjacency']}: {statement['adjacency_means']}",
        "clipped": f"{ball}{bounds}{floor}; domain: {clip['domain']}",
        "noise": f"{amount} (sensitivity {noise['sensitivity']:g}); {noise['chosen_by']}",
        "delta": "" if delta is None else f"{text(delta['value'], up=True)} = {delta['meaning']}",
        "rounding": f"records and noise lie on one grid of {noise['grid']:g}, where their sum is exact; "
        f"then {data['dtype']}",
    }
    return [(name, fact) for name, fact in rows.items() if fact]


def to_markdown(statement: dict[str, Any]) -> str:
    """Render the statement of local reports as Markdown."""
    data = statement["data"]
    shape = " x ".join(str(side) for side in data["shape"])
    return privacy_statement.to_markdown(
        statement,
        title=data["name"],
        summary=[f"{headline(statement)}.", ""],
        facts=facts(statement),
        data="; ".join([f"{data['records']} records of {shape}", *data["read_as"]]),
    )
