"""Statement texts on floating point, for the two forms of noise in training: ``rounded`` and ``exact``."""

from __future__ import annotations

from wpriv.config.train_schema import Privacy

MOST_ADDED = 2.0**-6
"""The largest relative increase of exact noise over the multiplier times the sensitivity (as in engine/release.py)."""
ROUNDED = (
    "floating point: noise is generated and added in float64, and a release is rounded to a grid of 2^-20 standard "
    "deviations (or up to twice as fine). This prevents the attack that tells noise from noise plus a gradient by the "
    "low digits of a released number (Mironov 2012). It is no proof: the sum is rounded before noise is added, so that "
    "one record may move it by slightly more than its sensitivity (Casacuberta et al. 2022), and the noise is normal "
    "up to rounding and ends at 9.3 standard deviations (reached once in 2^62 draws). No figure here has a term for "
    "that. privacy: {noise: exact} covers all of it"
)
EXACT = (
    "floating point: each record is processed separately, clipped and rounded to a grid without exceeding the clipping "
    "norm, and records are added without rounding; noise is distributed exactly as a normal number rounded to a grid "
    "of 2^-20 standard deviations (or finer), and is enlarged by what rounding adds to the sensitivity (1/64 at most). "
    "This prevents the attack by the low digits of a released number (Mironov 2012) and those by sums that move more "
    "than their sensitivity (Casacuberta et al. 2022): the guarantee is that of the released numbers, provided that "
    "torch computes the same gradient whenever it is given the same record, weights and random draws"
)

BEFORE_EXACT = "floating point in the steps of the runs before this one, as far as their noise was rounded"


def covered(private: Privacy) -> list[str]:
    """Return the statement's lines on floating point that the guarantee covers."""
    return [EXACT] if private.exact else []


def not_assessed(private: Privacy, *, fork: bool = False) -> list[str]:
    """Return the statement's lines on floating point that no bound covers.

    Args:
        fork: the guarantee is also about runs before this one, of which the ledger does not tell the form of the noise.
    """
    if not private.exact:
        return [ROUNDED]
    return [BEFORE_EXACT] if fork else []


def deviation(private: Privacy, planned: float) -> dict[str, object]:
    """Return the form and the standard deviation of the noise, and the largest one if it depends on the model.

    Args:
        planned: the multiplier times the sensitivity.
    """
    largest = {"standard_deviation_at_most": planned * (1 + MOST_ADDED)} if private.exact else {}
    return {"form": private.noise, "standard_deviation": planned, **largest}
