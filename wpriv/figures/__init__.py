"""Figures, by the name users type.

A figure is a file with ``draw(rows, axes)``, a function under ``@figure``, or an entry of ``_declared.py``. ``draw``
adds one table (for ``samples``: the arrays of one .npz file) to the axes of matplotlib. It raises KeyError if columns
are missing, and ValueError or UsageError if the table has another shape. ``draw_published(rows, points, axes)``, if
there is one, adds published numbers, each given as its row, its column and the number.
"""

from wpriv.figures import _bounds, _papers, _records, _trainings
from wpriv.figures._declared import DECLARED

__all__ = ["DECLARED", "_bounds", "_papers", "_records", "_trainings"]
