"""A figure as a function: ``@figure(about)`` lists it under the name of the function, with dashes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Row = dict[str, Any]
Rows = list[Row]
Points = list[tuple[Row, str, float]]  # published numbers, each given as its row, its column and the number
Drawing = Callable[[Any, Any], None]  # draws a table, or for ``samples`` arrays, on axes
Publishing = Callable[[Rows, Points, Any], None]


class Figure:
    """A figure of the registry: ``about``, ``draw``, and ``draw_published`` if a function was given for it."""

    draw_published: Publishing

    def __init__(self, about: str, draw: Drawing):
        self.about, self.draw = about, draw

    def published(self, function: Publishing) -> Publishing:
        """Draw published numbers by a function: a decorator."""
        self.draw_published = function
        return function


FIGURES: dict[str, Figure] = {}


def figure(about: str) -> Callable[[Drawing], Figure]:
    """Add a function to the figures, with what it shows: a decorator."""

    def declare(draw: Drawing) -> Figure:
        return FIGURES.setdefault(draw.__name__.replace("_", "-"), Figure(about, draw))

    return declare
