"""How gradients are clipped and how much noise they get, in words, from the entry ``noise`` of a statement."""

from __future__ import annotations

from typing import Any


def clipped(noise: dict[str, Any]) -> str:
    """Return what is clipped and how, for the table of a statement."""
    rule = noise.get("rule")
    if rule == "automatic":
        formula = f"g becomes g / (|g| + {noise['stability']:g})"
        return f"{noise['clipped']}, by automatic clipping: {formula}, of an l2 norm below {noise['clip']:g}"
    if rule == "adaptive":
        aim = f"the quantile {noise['quantile']:g} of the norms of gradients"
        return f"{noise['clipped']}, to an l2 norm C that is {noise['clip']:g} at first and follows {aim}"
    return f"{noise['clipped']}, to an l2 norm of {noise['clip']:g}"


def deviation(noise: dict[str, Any], largest: str) -> str:
    """Return the standard deviation of the noise in words."""
    if noise.get("rule") != "adaptive":
        return f"standard deviation {noise['standard_deviation']:g}{largest}"
    unit = noise["sensitivity"] / noise["clip"]
    count = f"{noise['count_standard_deviation']:g} on the number of unclipped gradients, released with it"
    return f"standard deviation {noise['gradient_multiplier'] * unit:g} C (and {count})"
