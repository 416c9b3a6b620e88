"""Columns of large CSV files whose content is secret: read in blocks, exactly, with errors that say nothing of a row.

The table is one by RFC 4180: cells with commas, line ends or quotation marks stand in quotation marks, which are
doubled inside; all rows have as many cells as the first. Lines without a character are no rows. Bytes that are not
UTF-8 stay distinct, as surrogates. All characters of a block are looked at together, which takes a fifth of a
microsecond a cell, and a Python object is made for each distinct cell of a block only.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import BinaryIO

import numpy as np
from numpy.typing import NDArray

from wpriv.files import columns, csv_tables
from wpriv.files.columns import Block, Cells, Codes, Places
from wpriv.files.csv_tables import NO_TABLE, CsvError

BLOCK = 2**24  # bytes
SHORT = 64  # bytes of a cell that is compared as numbers of 8 bytes
QUOTE, COMMA, LF, CR = b'",\n\r'
MARK = b"\xef\xbb\xbf"
_MASKS = np.array([(1 << 8 * size) - 1 for size in range(9)], np.uint64)
Text = NDArray[np.uint8]


def blocks(path: Path, names: Sequence[str]) -> Iterator[Block]:
    """Yield some columns of a CSV file as text, exactly as in the file, for one block of rows after the other.

    Raises:
        CsvError: it is no table by RFC 4180. OSError: it cannot be read.
    """
    header = csv_tables.names_of(path)
    places = [header.index(name) for name in names]
    with path.open("rb") as file:
        first = 1
        for raw in _whole_rows(file):
            text = np.frombuffer(raw + bytes(SHORT + 8), np.uint8)
            begins, ends = _cells(text[: len(raw)], len(header))
            cells = [_coded(raw, text, begins[first:, place], ends[first:, place]) for place in places]
            yield Block(len(begins) - first, dict(zip(names, cells, strict=True)))
            first = 0


def _whole_rows(file: BinaryIO) -> Iterator[bytes]:
    """Yield the bytes of a file, cut behind ends of rows."""
    rest = file.read(len(MARK)).removeprefix(MARK)
    while True:
        more = file.read(max(BLOCK, len(rest)))
        raw = rest + (more or b"\n" * bool(rest))
        cut = _last_end(np.frombuffer(raw, np.uint8))
        if cut:
            yield raw[:cut]
        rest = raw[cut:]
        if not more:
            break
    if rest:
        raise CsvError(NO_TABLE)  # within quotation marks


def _last_end(text: Text) -> int:
    """The number of characters up to the last end of a row."""
    stops = _stops(text)
    ends = stops[text[stops] != COMMA]
    return int(ends[-1]) + 1 if len(ends) else 0


def _stops(text: Text) -> Places:
    """The places of commas and line ends outside quotation marks: those that an even number of marks precede."""
    stops = text == COMMA
    stops |= text == LF
    stops |= text == CR
    marks = text == QUOTE
    if marks.any():
        stops &= ~np.logical_xor.accumulate(marks)
    return np.flatnonzero(stops)


def _cells(text: Text, count: int) -> tuple[Places, Places]:
    """[rows, count] the first character of each cell, and that behind its last; quotation marks around it included."""
    stops = _stops(text)
    begins = np.concatenate([[0], stops[:-1] + 1])
    is_end = text[stops] != COMMA
    is_blank = is_end & (stops == begins)
    is_blank[1:] &= is_end[:-1]
    if is_blank.any():
        stops, begins, is_end = stops[~is_blank], begins[~is_blank], is_end[~is_blank]
    if len(stops) % count:
        raise CsvError(NO_TABLE)
    is_end = is_end.reshape(-1, count)
    marks = np.flatnonzero(text == QUOTE)
    if not is_end[:, -1].all() or is_end[:, :-1].any() or not _are_paired(text, marks):
        raise CsvError(NO_TABLE)
    return begins.reshape(-1, count), stops.reshape(-1, count)


def _are_paired(text: Text, marks: Places) -> bool:
    """Whether marks open cells and close them, or are doubled."""
    opening, closing = marks[::2], marks[1::2]
    before, after = text[opening - 1], text[closing + 1]
    starts = (opening == 0) | np.isin(before, (COMMA, LF, CR, QUOTE))
    return bool(starts.all() and np.isin(after, (COMMA, LF, CR, QUOTE)).all())


def _coded(raw: bytes, text: Text, begins: Places, ends: Places) -> Cells:
    """The cells of a column of a block."""
    quoted = text[begins] == QUOTE
    has_marks = bool(quoted.any())
    if has_marks:
        begins, ends = begins + quoted, ends - quoted
    codes, first = _compared(text, begins, ends - begins)
    values = []
    for start, stop, doubled in zip(begins[first].tolist(), ends[first].tolist(), quoted[first].tolist(), strict=True):
        value = raw[start:stop].decode("utf-8", "surrogateescape")
        values.append(value.replace('""', '"') if doubled else value)
    return Cells(values, codes)


def _compared(text: Text, begins: Places, lengths: Places) -> tuple[Codes, Places]:
    """Number equal cells alike: by eight bytes after the other, and long ones by all their bytes at once."""
    words = np.ndarray((len(text) - 7,), "<u8", text, strides=(1,))  # the eight bytes from each place on
    short = np.minimum(lengths, SHORT)
    codes, first = columns.distinct(short.astype(np.uint64))
    for place in range(0, int(short.max(initial=0)), 8):
        size = np.clip(short - place, 0, 8)
        more, _ = columns.distinct(words[np.minimum(begins + place, len(words) - 1)] & _MASKS[size])
        codes, first = columns.distinct(codes.astype(np.uint64) << np.uint64(32) | more.astype(np.uint64))
    known: dict[tuple[int, bytes], int] = {}
    long = np.flatnonzero(lengths > SHORT)
    if not long.size:
        return codes, first
    numbers = np.full(len(codes), 0, np.uint64)
    for row in long.tolist():
        start = int(begins[row])
        cell = (int(codes[row]), text[start : start + int(lengths[row])].tobytes())
        numbers[row] = known.setdefault(cell, len(known) + 1)
    return columns.distinct(codes.astype(np.uint64) << np.uint64(32) | numbers)
