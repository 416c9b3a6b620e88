"""Types of the mechanisms' parameters, for type checkers and editors; the mechanisms check the values."""

from __future__ import annotations

from typing import TypedDict


class MechanismParameters(TypedDict, total=False):
    """The parameters of all mechanisms that ship with wpriv; each takes some of them (``wpriv.Gauss`` and so on)."""

    sigma: float | str | None
    scale: float | str | None
    sensitivity: float | str | None
    radius: float | str | None
    bound: float | str | None
    d: int | str
    k: int | str
    eps0: float | str
    delta0: float | str
    mu: float | str
    rho: float | str
    outcomes: int | str
    nonnegative: int | str
    file: str
    bin_width: float | str
    cell: float | str
    lipschitz_x: float | str
    lipschitz_z: float | str | None
    size_x: int | str
    size_z: int | str | None
    private: str
    formula: str
    alpha: float | str
    clip: float | str
    labels: int | str
    size: int | str | None
    threshold: float | str | None
    keys: int | str
    strategy: str
    separation: int | str
    participations: int | str
