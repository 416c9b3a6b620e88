"""Tables that are not computed by accountants; a recipe selects one by ``table: NAME`` and sets its ``params``.

A table is a file, or a class of ``_declared.py``, with ``Params`` (a dataclass of type ``core.parameters.Parameters``),
``COLUMNS`` (numeric columns), ``SHOWN`` (columns in the order of the terminal output), optionally ``LABELS`` (columns
of text that identify a row) and ``WHOLE`` (true where the terminal shows every row of a long table), and
``rows(params)``, which returns one mapping for each row.
"""

from wpriv.papers.tables._declared import DECLARED

__all__ = ["DECLARED"]
