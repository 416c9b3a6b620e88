"""Pairs of distributions on few outcomes, on which the statements of Sommer, Meiser, Mohammadi (2019) are checked."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from wpriv.core.atomic_pair import AtomicPair
from wpriv.numerics.arrays import Array

# pairs (A, B) of distributions on few outcomes, the simplest first
PAIRS = (
    ([0.9, 0.1], [0.5, 0.5]),
    ([0.2, 0.3, 0.5], [0.4, 0.4, 0.2]),
    ([0.5, 0.3, 0.2, 0.0], [0.4, 0.35, 0.0, 0.25]),
)


def pair_of(p: Sequence[float] | Array, q: Sequence[float] | Array) -> AtomicPair:
    """The loss pair of two distributions on the same outcomes."""
    a, b = np.array(p), np.array(q)
    common = (a > 0) & (b > 0)
    losses, log_p = np.log(a[common] / b[common]), np.log(a[common])
    return AtomicPair(losses, log_p, float(a[b == 0].sum()), float(b[a == 0].sum()), log_q=np.log(b[common]))


def delta_of(p: Array, q: Array, eps: float) -> float:
    """Definition 5: the largest A(S) - e^eps B(S), from the probabilities of all outcomes."""
    return float(np.maximum(p - math.exp(eps) * q, 0).sum())
