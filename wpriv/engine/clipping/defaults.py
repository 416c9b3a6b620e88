"""Defaults of clipping, which statements name without loading torch."""

STABILITY = 0.01
"""The stability constant of automatic clipping in Bu et al. (2023)."""
