"""Loading Arrow tables and Parquet files, by pyarrow if it is installed."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ._qpair import Table


def _pyarrow() -> Any:
    try:
        import pyarrow
    except ImportError as error:
        raise ImportError("loading Arrow and Parquet needs pyarrow: pip install 'qpair[arrow]'") from error
    return pyarrow


def load_arrow(
    table: Table, source: Any, *, key: str = "key", value: str = "value", sorted: bool = False
) -> int:
    """Loads two columns of binary or text, and returns the number of records.

    ``source`` is a pyarrow Table, RecordBatch or RecordBatchReader, or an iterable of RecordBatches. ``sorted`` is as
    in ``Table.load``.
    """
    pyarrow = _pyarrow()
    if isinstance(source, pyarrow.Table):
        batches: Iterable[Any] = source.to_batches()
    elif isinstance(source, pyarrow.RecordBatch):
        batches = [source]
    else:
        batches = source
    return table._load_columns(_columns(pyarrow, batches, key, value), sorted=sorted)


def load_parquet(
    table: Table, path: str | os.PathLike[str], *, key: str = "key", value: str = "value", sorted: bool = False
) -> int:
    """Loads two columns of a Parquet file, by the batch, and returns the number of records."""
    _pyarrow()
    from pyarrow import parquet

    with parquet.ParquetFile(path) as file:
        return load_arrow(table, file.iter_batches(columns=[key, value]), key=key, value=value, sorted=sorted)


def _columns(pyarrow: Any, batches: Iterable[Any], key: str, value: str) -> Iterator[tuple[bytes, bytes, bytes, bytes]]:
    for batch in batches:
        yield (*_column(pyarrow, batch, key), *_column(pyarrow, batch, value))


def _column(pyarrow: Any, batch: Any, name: str) -> tuple[bytes, bytes]:
    """Returns the offsets of a column, of 64 bits, and its bytes."""
    column = batch.column(name)
    if column.null_count:
        raise ValueError(f"column '{name}' has nulls, and a key or value cannot be null")
    try:
        column = column.cast(pyarrow.large_binary())
    except pyarrow.ArrowNotImplementedError as error:
        raise TypeError(f"column '{name}' has type {column.type}: it must be binary or text") from error
    _, offsets, data = column.buffers()
    first = 8 * column.offset
    ends = offsets.slice(first, 8 * (len(column) + 1)).to_pybytes() if len(column) else bytes(8)
    return ends, data.to_pybytes() if data is not None else b""
