"""Types of the keywords of ``compare``, for type checkers and editors; the recipe schema checks the values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypedDict

from wpriv.core.process import Process

Steps = Sequence[Mapping[str, Any]]


class ComparisonKeys(TypedDict, total=False):
    """The keys of a recipe of kind compare, as keywords; a process may be a ``Process``."""

    process: Process | Steps
    cases: Mapping[str, Process | Steps]
    adjacency: str | None
    group: int | None
    accountants: Sequence[str]
    sweep: Mapping[str, Any] | Sequence[Mapping[str, Any]]
    eps: float | None
    eps_per_n: float | None
    delta: float | None
    tol: float | None
    repeats: str | None
    table: str
    params: Mapping[str, Any]
    bins: int
    figure: str | None
    title: str | None
    limits: Mapping[str, Sequence[float]]
    expect: Sequence[Mapping[str, Any]]
    panels: Sequence[Mapping[str, Any]]
    claims: Sequence[Mapping[str, Any]]
