"""Tables of Arrow and files of Parquet, whose types are in the schema; no statistics of a file are looked at."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyarrow import types

from wpriv.errors import UsageError
from wpriv.files.columns import BOOLEAN, DATE, INTEGER, NUMBER, TEXT, UUIDS, Block, Cells

ROWS = 2**20  # of a block
_TICKS = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
_DAY = 86_400


def _type(kind: pa.DataType) -> str:
    """The type of a column as releases name it, or as Arrow names it if they do not read it."""
    if types.is_dictionary(kind):
        return _type(kind.value_type)
    if types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind):
        return TEXT
    if types.is_boolean(kind):
        return BOOLEAN
    if types.is_integer(kind):
        return INTEGER
    if types.is_floating(kind) or types.is_decimal(kind):
        return NUMBER
    if types.is_date(kind) or types.is_timestamp(kind):
        return DATE
    if kind == pa.uuid():
        return UUIDS
    return "" if types.is_null(kind) else str(kind)


def _types(schema: pa.Schema) -> dict[str, str]:
    if len(set(schema.names)) < len(schema.names):
        raise UsageError("the columns of a table must have different names; rename them")
    return {field.name: _type(field.type) for field in schema}


def file_types(path: Path) -> dict[str, str]:
    """The names and types of the columns of a file of Parquet.

    Raises:
        UsageError: it is none.
    """
    with _reading(path):
        return _types(pq.read_schema(path))


def file_blocks(path: Path, columns: Sequence[str]) -> Iterator[Block]:
    """Yield some columns of a file of Parquet, a block of rows after the other; errors as for ``file_types``."""
    with _reading(path), pq.ParquetFile(path) as file:
        for batch in file.iter_batches(batch_size=ROWS, columns=list(columns)):
            yield _block(batch, columns)


@contextmanager
def _reading(path: Path) -> Iterator[None]:
    try:
        yield
    except (OSError, pa.ArrowException):
        raise UsageError(f"{path} cannot be read as a file of Parquet") from None


@dataclass(frozen=True, eq=False)
class ArrowTable:
    """A table of Arrow, or whatever gives its rows as a stream of Arrow."""

    data: pa.Table
    columns: tuple[str, ...]
    types: Mapping[str, str]
    name: str = "the table"

    @classmethod
    def open(cls, data: Any) -> ArrowTable:
        """Note the columns and their types."""
        table = data if isinstance(data, pa.Table) else pa.table(data)
        return cls(table, tuple(table.schema.names), _types(table.schema))

    def blocks(self, columns: Sequence[str]) -> Iterator[Block]:
        for batch in self.data.select(list(columns)).to_batches(max_chunksize=ROWS):
            yield _block(batch, columns)


def _block(batch: pa.RecordBatch, columns: Sequence[str]) -> Block:
    return Block(batch.num_rows, {name: _cells(batch.column(name)) for name in columns})


def _cells(column: pa.Array) -> Cells:
    """Some cells of a column, exactly."""
    kind = column.type
    if types.is_dictionary(kind):
        values = _values(column.dictionary)
        return Cells(values, column.indices.fill_null(-1).cast(pa.int32()).to_numpy(zero_copy_only=False))
    if types.is_boolean(kind) or types.is_integer(kind) or types.is_floating(kind):
        wide = pa.bool_() if types.is_boolean(kind) else pa.float64() if types.is_floating(kind) else pa.int64()
        return _numbers(column if kind == pa.uint64() else column.cast(wide))
    if types.is_date(kind) or types.is_timestamp(kind):
        return _days(column)
    if kind == pa.uuid():
        raw = _cells(column.storage.dictionary_encode())
        return Cells([uuid.UUID(bytes=each) if isinstance(each, bytes) else None for each in raw.values], raw.codes)
    if types.is_string_view(kind):
        column = column.cast(pa.large_string(), safe=False)
    return Cells([None] * len(column)) if types.is_null(kind) else _cells(column.dictionary_encode())


def _numbers(column: pa.Array, *, dates: bool = False) -> Cells:
    codes = None
    if column.null_count:
        present = column.is_valid().to_numpy(zero_copy_only=False)
        codes = np.where(present, np.arange(len(column), dtype=np.int32), np.int32(-1))
        column = column.fill_null(0) if not types.is_boolean(column.type) else column.fill_null(False)
    return Cells(column.to_numpy(zero_copy_only=False), codes, dates)


def _days(column: pa.Array) -> Cells:
    """Dates and timestamps as days since 1970-01-01; of a time zone, as its clocks show them."""
    kind = column.type
    if types.is_date32(kind):
        return _numbers(column.cast(pa.int32()).cast(pa.int64()), dates=True)
    if types.is_timestamp(kind) and kind.tz is not None:
        column = pc.local_timestamp(column)
    a_day = _DAY * (_TICKS["ms"] if types.is_date64(kind) else _TICKS[kind.unit])
    ticks = _numbers(column.cast(pa.int64()), dates=True)
    return Cells(np.asarray(ticks.values) // a_day, ticks.codes, dates=True)


def _values(dictionary: pa.Array) -> list[object]:
    """The values of a dictionary; text that is no UTF-8 stays distinct, as surrogates."""
    try:
        values: list[object] = dictionary.to_pylist()
    except UnicodeDecodeError:
        raw = dictionary.cast(pa.large_binary()).to_pylist()
        values = [None if each is None else each.decode("utf-8", "surrogateescape") for each in raw]
    return values
