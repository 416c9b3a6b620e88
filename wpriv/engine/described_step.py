"""Steps from their descriptions: the inverse of ``Step.describe``, for ledgers and statements that wpriv wrote."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from wpriv.core import registry
from wpriv.core.mechanism import Mechanism
from wpriv.core.process import Step
from wpriv.core.sampling.kinds import Sampling
from wpriv.errors import UnknownName, UsageError
from wpriv.numerics.parse_numbers import shown

SAMPLING_KEYS = ("sampling", "rate", "max_batch")


def described_step(row: Mapping[str, Any]) -> Step:
    """The step that ``Step.describe`` described as ``row``.

    Raises:
        UsageError: a key is missing or unknown, or a value is faulty; or the step has observed distances, of which a
            description has the origin alone.
    """
    if "n" not in row:
        raise UsageError(f"a step needs n, the number of compositions; found the keys {', '.join(map(str, row))}")
    mechanism, sampling = described_release({key: value for key, value in row.items() if key != "n"})
    return Step(mechanism, row["n"], sampling)


def described_release(row: Mapping[str, Any]) -> tuple[Mechanism, Sampling]:
    """The mechanism and the sampling of a description without its count.

    Raises:
        UsageError: as ``described_step``.
    """
    mech = row.get("mech")
    if not isinstance(mech, str):
        raise UsageError(f"a step needs the name of its mechanism under mech; found {shown(mech)}")
    cls = registry.mechanism(mech)
    fields = {f.name: f for f in dataclasses.fields(cls)}
    for key in row:
        if key not in ("mech", *SAMPLING_KEYS, *fields):
            raise UnknownName("parameter", str(key), [*fields, *SAMPLING_KEYS], owner=mech)
    for name, f in fields.items():
        if name not in row and f.default is dataclasses.MISSING:
            raise UsageError(f"{mech} needs {name}; found none")
    kind = row.get("sampling", "none")
    if kind != "none" and "rate" not in row:
        raise UsageError(f"{shown(kind)} sampling needs a rate; found none")
    sampling = Sampling(kind, row.get("rate", 1.0), row.get("max_batch", 0))
    return cls(**{key: value for key, value in row.items() if key in fields}), sampling
