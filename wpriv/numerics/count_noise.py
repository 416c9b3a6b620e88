"""How the noise of one release is divided between clipped gradients and a count of records."""

from __future__ import annotations

import math

from wpriv.errors import UsageError


def default_count_noise(batch: float) -> float:
    """Return the standard deviation of the noise on a count that Andrew et al. (2021) recommend: batch / 20."""
    return batch / 20


def count_share(multiplier: float, count_noise: float, adjacency: str) -> float:
    """Return r, the share of a count in a joint release of noise multiplier ``multiplier``.

    A record moves the sum of gradients by u C and the sum of its bits less 1/2 by u / 2, where u is 1 under add-remove
    and 2 under replace-one. With the count scaled by 2 r C the joint vector moves by u C sqrt(1 + r^2), and noise of
    multiplier z on it is noise of standard deviation u z sqrt(1 + 1 / r^2) / 2 on the count.

    Args:
        multiplier: z, the noise over the sensitivity of the joint release. count_noise: that standard deviation.
    Raises:
        UsageError: the joint noise alone is that large, at whatever r.

    >>> round(count_share(1.0, 12.8, "add-remove"), 6)
    0.039092
    """
    unit = 1.0 if adjacency == "add-remove" else 2.0
    ratio = 2 * count_noise / (unit * multiplier)
    if not ratio > 1:
        raise UsageError(
            f"adapt: count_noise must be above {unit * multiplier / 2:.6g} at a noise multiplier of {multiplier:.6g}: "
            f"the count alone would need more noise than the release has; found {count_noise:g}"
        )
    return 1 / math.sqrt(ratio * ratio - 1)


def gradient_multiplier(multiplier: float, count_noise: float, adjacency: str) -> float:
    """Return the noise on the sum of gradients over its sensitivity u C: multiplier times sqrt(1 + r^2).

    >>> round(gradient_multiplier(1.0, 12.8, "add-remove"), 6)
    1.000764
    """
    return multiplier * math.sqrt(1 + count_share(multiplier, count_noise, adjacency) ** 2)
