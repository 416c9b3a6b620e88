"""What a privacy statement says of floating point, by the form of a training's noise: ``rounded`` or ``exact``."""

from __future__ import annotations

from wpriv.config.train_schema import Privacy

MOST_ADDED = 2.0**-6
"""The largest share by which exact noise is larger than the multiplier times the sensitivity (as in wpriv/engine/release.py)."""
ROUNDED = (
    "floating point: noise is made and added in float64, and a release is rounded to a grid of 2^-20 standard deviations "
    "(or up to twice as fine). This stops the attack that tells noise from noise plus a gradient by the low digits of a "
    "released number (Mironov 2012). It is no proof: the sum is rounded before noise is added, so that one record may move "
    "it by a little more than its sensitivity (Casacuberta et al. 2022), and the noise is normal up to rounding and ends "
    "9.3 standard deviations out (reached once in 2^62 draws). "
    "No figure here has a term for that. privacy: {noise: exact} covers all of it"
)
EXACT = (
    "floating point: every record is taken by itself, clipped and cut to a grid without exceeding the clipping norm, and "
    "records are added up without rounding; noise is distributed exactly as a normal number rounded to a grid of 2^-20 "
    "standard deviations (or finer), and is enlarged by what rounding adds to the sensitivity (1/64 at most). This stops "
    "the attack by the low digits of a released number (Mironov 2012) and those by sums that move more than their "
    "sensitivity (Casacuberta et al. 2022): the guarantee is that of the numbers that are released, where torch computes "
    "the same gradient whenever it is given the same record, weights and random draws"
)


def covered(private: Privacy) -> list[str]:
    """What the guarantee covers of floating point."""
    return [EXACT] if private.exact else []


def not_assessed(private: Privacy) -> list[str]:
    """What nobody has bounded of floating point."""
    return [] if private.exact else [ROUNDED]


def deviation(private: Privacy, least: float) -> dict[str, object]:
    """The form of the noise, its standard deviation and, where that depends on the model, the largest it may be."""
    most = {"standard_deviation_at_most": least * (1 + MOST_ADDED)} if private.exact else {}
    return {"form": private.noise, "standard_deviation": least, **most}
