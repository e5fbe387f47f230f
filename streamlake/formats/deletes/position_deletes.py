"""Position delete files: their columns, and their rows as sorted positions per data file.

Spec: Position Delete Files. Scans and whatever merges deletes read them; the `write` package writes them.
Paths are read as dictionaries and rows are split by runs of one path, so a file of millions of positions in a
few hundred data files costs little more than its positions. Invariant: a file that cannot be read whole is an
error, never fewer deletes.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from streamlake.errors import DataInvalidError
from streamlake.formats.arrow.arrow_ids import field_id_of
from streamlake.formats.columns.file_batches import read_errors
from streamlake.formats.columns.name_mapping import NameMapping
from streamlake.formats.readers import read_data_file
from streamlake.spec.metadata.data_file import DataFile
from streamlake.spec.types.data_types import LongType, NestedField, StringType
from streamlake.spec.types.schema import Schema
from streamlake.storage.file_io import FileIO

FILE_PATH_ID = 2147483546
POSITION_ID = 2147483545
FILE_PATH_FIELD = NestedField(FILE_PATH_ID, "file_path", StringType(), required=True)
POSITION_FIELD = NestedField(POSITION_ID, "pos", LongType(), required=True)
POSITION_DELETES = Schema((FILE_PATH_FIELD, POSITION_FIELD))

Positions = np.ndarray[Any, np.dtype[np.int64]]

_BATCH_ROWS = 1 << 20
_RUNS_PER_PATH = 8


def read_position_deletes(io: FileIO, delete_file: DataFile) -> dict[str, Positions]:
    """The deleted positions of each data file by its path, ascending and without duplicates.

    Raises DataInvalidError when the file is damaged, lacks a column, or has another number of rows than the
    manifest says; StorageError when it cannot be read.
    """
    path = delete_file.file_path
    found: defaultdict[str, list[Positions]] = defaultdict(list)
    rows = 0
    for paths, positions in _columns(io, delete_file):
        if paths.null_count or positions.null_count:
            raise DataInvalidError(f"{path}: a position delete file with nulls; restore the file")
        rows += len(positions)
        for name, part in _split(paths, positions.to_numpy()):
            found[name].append(part)
    if rows != delete_file.record_count:
        raise DataInvalidError(
            f"{path}: {rows} position deletes, the manifest says {delete_file.record_count}; restore the file"
        )
    return {name: merged_positions(parts) for name, parts in found.items()}


def merged_positions(parts: list[Positions]) -> Positions:
    """One ascending array with every position of `parts` once.

    Nothing is sorted when the parts follow one another.
    """
    merged = parts[0] if len(parts) == 1 else np.concatenate(parts) if parts else np.empty(0, dtype=np.int64)
    if bool((merged[1:] > merged[:-1]).all()):
        return merged
    # Sorting takes a twentieth of the time of numpy's `unique`.
    merged = np.sort(merged)
    first: Positions = merged[np.append(True, merged[1:] != merged[:-1])]
    return first


def _columns(io: FileIO, file: DataFile) -> Iterator[tuple[pa.DictionaryArray, pa.Array]]:
    """Chunks of the two columns: paths as dictionaries, positions as int64."""
    if file.file_format == "parquet":
        yield from _parquet_columns(io, file.file_path)
        return
    mapping = NameMapping.of_schema(POSITION_DELETES)
    for batch in read_data_file(
        io, file.file_format, file.file_path, POSITION_DELETES, name_mapping=mapping, batch_size=_BATCH_ROWS
    ):
        yield batch.column(0).dictionary_encode(), batch.column(1)


def _parquet_columns(io: FileIO, path: str) -> Iterator[tuple[pa.DictionaryArray, pa.Array]]:
    with read_errors(path), io.open_input(path) as stream:
        footer = pq.read_metadata(stream)
        names = [
            _column_name(footer.schema.to_arrow_schema(), part, path) for part in POSITION_DELETES.fields
        ]
        file = pq.ParquetFile(stream, metadata=footer, read_dictionary=names[:1], pre_buffer=True)
        for batch in file.iter_batches(batch_size=_BATCH_ROWS, columns=names):
            paths = batch.column(names[0])
            if not pa.types.is_dictionary(paths.type):
                paths = paths.cast(pa.string()).dictionary_encode()
            yield paths, batch.column(names[1]).cast(pa.int64())


def _column_name(schema: pa.Schema, part: NestedField, path: str) -> str:
    """The column with the field's id, or with its name where the file has no ids."""
    by_id = {field_id_of(column): column.name for column in schema}
    fallback = part.name if set(by_id) <= {None} and part.name in schema.names else None
    name = by_id.get(part.field_id, fallback)
    if name is None:
        raise DataInvalidError(
            f"{path}: a position delete file without the column {part.name} (field id {part.field_id}); "
            "restore it"
        )
    return str(name)


def _split(paths: pa.DictionaryArray, positions: Positions) -> Iterator[tuple[str, Positions]]:
    """The positions of each path: slices of runs where rows are sorted by path, otherwise grouped first."""
    codes = paths.indices.to_numpy()
    names = paths.dictionary.to_pylist()
    if not len(codes):
        return
    edges: np.ndarray[Any, Any] = np.flatnonzero(codes[1:] != codes[:-1]) + 1
    if len(edges) >= _RUNS_PER_PATH * len(names):
        # numpy sorts 16-bit numbers by radix.
        order = np.argsort(codes.astype(np.uint16) if len(names) <= 1 << 16 else codes, kind="stable")
        codes, positions = codes[order], positions[order]
        edges = np.flatnonzero(codes[1:] != codes[:-1]) + 1
    starts = [0, *edges.tolist()]
    for start, stop in zip(starts, [*starts[1:], len(codes)], strict=True):
        yield names[codes[start]], positions[start:stop]
