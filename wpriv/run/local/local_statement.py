"""What privatised records promise and what they do not: one record for programs (.statement.json) and the same in words (.md)."""

from __future__ import annotations

import platform
from typing import Any

import numpy as np

from wpriv._version import __version__
from wpriv.core.adjacency import Adjacency
from wpriv.numerics.safe_rounding import text
from wpriv.run.accounting.plausibility import plausibility_warnings
from wpriv.run.local.mechanism_plan import Plan
from wpriv.run.local.records import Records
from wpriv.run.results import publication

SCHEMA = "wpriv.statement/1"
UNIT = "every record by itself: all numbers of one row of the data"
COVERED = [
    "each report by itself, also against whoever knows all other records",
    "whatever is computed from the reports, and so every training on them: post-processing, which costs no further privacy",
]
NOT_COVERED = [
    "the number of records, their order and their shape",
    "several records of one person: their eps add up, and so do those of further reports from the same records",
    "the choice of radius, mechanism and transform, where these records were looked at for it",
]
LABELS_PUBLIC = "the labels: written as they are, since --public-labels says that they are public"
NOT_ASSESSED = [
    f"the generator: noise is {publication.GENERATOR}; 64 bits a number are turned into noise by inversion in float64: "
    "probabilities have an error of about 2^-64 each, and magnitudes end at {most} {unit}, beyond which 2^-64 is left (also of pure DP)",
    "side channels: run time, memory, error messages, what else saw the records",
]
FIXED_SEED = "the seed is fixed and recorded: whoever knows it can draw the same noise and subtract it. Leave --seed out for a release"


def statement(plan: Plan, read: Records, labels: bool) -> dict[str, Any]:
    """All that is to be said of privatised records, as plain data. Nothing in it was computed from the records themselves.

    A checksum of them would let anybody test guesses about them, and the share that was clipped tells of them too: neither is here.
    """
    priced = plan.priced
    mechanism, row = priced.mechanism, priced.row
    most, unit = ("9.2", "standard deviations") if priced.p == 2 else ("44.4", "scales")
    return {
        "schema": SCHEMA,
        "task": "privatize",
        "private": True,
        "unit": UNIT,
        "adjacency": row.process.adjacency,
        "adjacency_means": Adjacency(row.process.adjacency).meaning,
        "mechanism": mechanism.describe(),
        "noise": {
            mechanism.noise: priced.noise,
            "on": "each cosine coefficient" if plan.dct else "each number",
            "sensitivity": mechanism.sensitivity,
            "chosen_by": priced.formula,
            "grid": plan.step,
        },
        "clip": {
            "norm": f"l{priced.p}",
            "radius": plan.radius,
            "center": plan.center,
            "how": "scaled down onto the ball" if priced.p == 2 else "the nearest point of the ball",
            "nonnegative": priced.nonnegative,
            "bounds_from": plan.bounds_from or None,
            "domain": "orthonormal cosine transform (DCT-II)" if plan.dct else "as read",
        },
        "guarantees": [row.as_dict()],
        "delta": publication.share(row.delta.safe, len(read.x)),
        "trust_model": publication.LOCAL,
        "publish": publication.of_reports(labels=labels, seed=plan.seed),
        "covered": COVERED,
        "not_covered": NOT_COVERED + [LABELS_PUBLIC] * labels,
        "not_assessed": [line.format(most=most, unit=unit) for line in NOT_ASSESSED],
        "warnings": list(
            dict.fromkeys(
                [FIXED_SEED] * (plan.seed is not None) + [*row.warnings, *plausibility_warnings(row, len(read.x))]
            )
        ),
        "seed": plan.seed,
        "versions": {"wpriv": __version__, "python": platform.python_version(), "numpy": np.__version__},
        "data": {
            "name": read.name,
            "records": len(read.x),
            "shape": list(read.shape),
            "dtype": plan.dtype,
            "read_as": list(read.told),
        },
    }


def headline(said: dict[str, Any]) -> str:
    """'eps = 34.9995 at delta = 0.0001 for every record by itself, exact by pld': what the statement comes down to."""
    row = said["guarantees"][0]
    ends = (
        ""
        if row["claim"] != "certified"
        else f" in [{text(row['epsilon_lower'], up=False)}, {text(row['epsilon_upper'], up=True)}]"
    )
    pure = " (pure DP)" if row["delta"] == 0 else ""
    promised = f"eps = {text(row['epsilon'], up=True)} at delta = {text(row['delta'], up=True)}{pure}"
    return f"{promised} for every record by itself, {row['claim']} by {row['accountant']}{ends}"


def facts(said: dict[str, Any]) -> list[tuple[str, str]]:
    """The rest of it as pairs of a word and what is to be said, each one line."""
    noise, clip, data = said["noise"], said["clip"], said["data"]
    name = "sigma" if "sigma" in noise else "scale"
    bounds = f", after each number was clamped to {clip['bounds_from']}" if clip["bounds_from"] else ""
    floor = ", after negative numbers became 0" if clip["nonnegative"] else ""
    middle = f" about {clip['center']:g}" if clip["center"] else ""
    kind = "Gauss" if name == "sigma" else "Laplace"
    return [
        ("protected", said["unit"]),
        ("neighbours", f"{said['adjacency']}: {said['adjacency_means']}"),
        (
            "clipped",
            f"to an {clip['norm']} norm of {clip['radius']:g}{middle}, exactly, {clip['how']}{bounds}{floor}; domain: {clip['domain']}",
        ),
        (
            "noise",
            f"{kind}, {name} {noise[name]:g} on {noise['on']} (sensitivity {noise['sensitivity']:g}); {noise['chosen_by']}",
        ),
        *(
            [("delta", f"{text(said['delta']['value'], up=True)} = {said['delta']['meaning']}")]
            if "delta" in said
            else []
        ),
        (
            "rounding",
            f"records and noise lie on one grid of {noise['grid']:g}, where their sum is exact; then {data['dtype']}",
        ),
    ]


def to_markdown(said: dict[str, Any]) -> str:
    """The statement in Markdown."""
    data = said["data"]
    lines = [f"# Privacy statement: {data['name']}", "", f"{headline(said)}.", "", "| what | |", "|---|---|"]
    lines += [f"| {what} | {value} |" for what, value in facts(said)] + [""]
    lines += publication.lines("Trust model", said["trust_model"]) + publication.table(said["publish"])
    for title, key in (
        ("Covered", "covered"),
        ("Not covered", "not_covered"),
        ("Not assessed", "not_assessed"),
        ("Warnings", "warnings"),
    ):
        lines += [f"## {title}", "", *(f"- {line}" for line in said[key] or ["none"]), ""]
    seed = "from the operating system, not recorded" if said["seed"] is None else f"{said['seed']} (fixed)"
    versions = ", ".join(f"{key} {value}" for key, value in said["versions"].items())
    shape = " x ".join(str(side) for side in data["shape"])
    read = "".join(f"; {line}" for line in data["read_as"])
    return "\n".join(
        [*lines, f"Seed: {seed}. Versions: {versions}. Data: {data['records']} records of {shape}{read}.", ""]
    )
