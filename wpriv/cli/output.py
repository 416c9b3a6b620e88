"""Print lines, tables and JSON to standard output, notes and warnings to standard error."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from wpriv._version import __version__
from wpriv.cli import terminal
from wpriv.cli.flags import as_flags
from wpriv.files.json_values import plain

if TYPE_CHECKING:
    from wpriv.core.guarantee import Guarantee


def emit(*lines: str) -> None:
    """Print lines of a result to standard output."""
    for line in lines:
        print(line)


def emit_bold(line: str, *others: str) -> None:
    """Print a result, its first line in bold where standard output is a terminal that may have colour."""
    emit(f"\x1b[1m{line}\x1b[0m" if terminal.has_colour(sys.stdout) else line, *others)


def emit_json(data: Mapping[str, Any]) -> None:
    """Print one JSON object; infinities and NaN are the strings "inf", "-inf" and "nan"."""
    print(json.dumps(plain(data), allow_nan=False))


def emit_result(schema: str, **data: Any) -> None:
    """Print a result as one JSON object, with its schema and the version of this program."""
    emit_json({"schema": schema, **data, "version": __version__})


def emit_rows(rows: Sequence[Mapping[str, Any]], schema: str, **more: Any) -> None:
    """Print rows as one JSON object."""
    emit_result(schema, rows=list(rows), **more)


def emit_table(header: Sequence[str], rows: Sequence[Sequence[str]], *, above: str = "", below: str = "") -> None:
    """Print a table, on a terminal with a bold header and coloured claims and verdicts.

    Args:
        above, below: text around the table, with its line breaks.
    """
    terminal.print_table(f"{above}{table(header, rows)}{below}")


def say(kind: str, *lines: str) -> None:
    """Print notes or warnings to standard error, with arguments in backticks as flags; file names stay unchanged."""
    for line in lines:
        print(f"wpriv: {kind}: {line if kind == 'wrote' else as_flags(line)}", file=sys.stderr)


def print_with_certificate(show: Callable[[], None], row: Callable[[], Guarantee], path: str | None) -> None:
    """Write the certificate of an answer where one was asked for, and print the answer.

    The file comes first, since the reader of the answer may close the pipe. The answer is printed even where the file
    cannot be written.

    Args:
        show: prints the answer.
        row: returns the guarantee that is certified. path: of the certificate; None where none was asked for.
    """
    notes = []
    try:
        if path is not None:
            from wpriv.run.accounting import certificates

            notes.append(certificates.write(row(), path))
    finally:
        show()
    say("wrote", *notes)


def warn(lines: Iterable[str]) -> None:
    """Print warnings to standard error."""
    say("warning", *lines)


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table of columns padded to their widest cell, two spaces apart, without rules."""
    lines = [header, *rows]
    widths = [max(len(line[i]) for line in lines) for i in range(len(header))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines
    )


def cell(value: Any) -> str:
    """Return a value as a table cell: six digits of a float, yes or no, empty for None."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if value is None:
        return ""
    return f"{value:.6g}" if isinstance(value, float) else str(value)
