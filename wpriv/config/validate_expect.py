"""Validate rows of expected numbers: the columns they name and the labels they select by."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from wpriv.config.document import Diagnostic, Document, abbreviate
from wpriv.config.field_types import Expect
from wpriv.hints import did_you_mean

# shorter words that recipes use for columns of tables
ALIASES = {"eps": "epsilon"}


def expect_diagnostics(
    part: Document, rows: Iterable[Expect], columns: Sequence[str], labels: set[str]
) -> Iterator[Diagnostic]:
    """Yield what is wrong with rows of ``expect``.

    Args:
        part: the document that holds them under its key ``expect``. columns: that an expected number may be about.
        labels: columns that ``where`` may select rows by.
    """
    for index, row in enumerate(rows):
        path = ("expect", index)
        numbers = row.model_extra or {}
        for key, value in numbers.items():
            if ALIASES.get(key, key) not in columns:
                near = did_you_mean(key, [*columns, *Expect.model_fields])
                yield part.diagnostic((*path, key), f"unknown key {key!r}{near}", at_key=True)
            elif isinstance(value, bool) or not isinstance(value, (int, float)):
                yield part.diagnostic((*path, key), f"{key} must be a number; found {abbreviate(value)}")
        if row.at_least and row.at_most:
            message = "at_least and at_most are for bounds from one side: write one of them, or neither for a value"
            yield part.diagnostic((*path, "at_most"), message, at_key=True)
        if not numbers:
            yield part.diagnostic(path, f"an expect row needs a number to meet, under one of {', '.join(columns)}")
        for key in row.where:
            if key not in labels:
                message = f"unknown column {key!r}{did_you_mean(key, sorted(labels))}"
                yield part.diagnostic((*path, "where", key), message, at_key=True)
