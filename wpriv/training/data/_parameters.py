"""Types of the readers' parameters, for type checkers and editors; the readers check the values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypedDict


class ReaderParameters(TypedDict, total=False):
    """The parameters of all data sets that ship with wpriv; each takes some of them (see ``wpriv data show``)."""

    agreement: float
    attribute: str
    attributes: str
    categories: Mapping[str, object] | str
    classes: Sequence[object] | str
    core: int
    core_variance: float
    crop: int
    d: int
    draw: int
    draw_seed: int
    drop: str
    features: str
    file: str
    folder: str
    grey: bool
    labels: str
    law: str
    length: int
    max_per_person: int
    number: bool
    part: str
    points: int
    ranges: Mapping[str, object] | str
    sensitive: str
    side: int
    size: float
    source: str
    split_seed: int
    spread: float
    spurious: int
    spurious_variance: float
    target: str
    test: str
    test_file: str
    test_share: float
    test_size: int
    tests: int
    tokens: int
    train: str
    verify: bool
    x: Sequence[str] | str
    y: str
