"""Rows of a data file that delete files take out (spec: Delete Formats).

Position deletes and deletion vectors become sorted positions, the equality deletes of a scope one structure of keys;
each is read once per scan and applied to whole batches. Invariant: a delete file that cannot be read is an error,
never ignored.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streamlake.errors import DataInvalidError, FeatureUnsupportedError
from streamlake.formats.deletion_vectors import read_deletion_vector
from streamlake.formats.name_mapping import NameMapping
from streamlake.formats.position_deletes import merged_positions, read_position_deletes
from streamlake.formats.readers import read_data_file
from streamlake.index.key_codec import KEY_TYPES
from streamlake.read.column_selection import field_path
from streamlake.read.delete_index import EqualityDeletes
from streamlake.read.deleted_keys import CodedKeys, DeletedKeys, KeyCoding, merged_keys
from streamlake.read.planning import FileScanTask
from streamlake.read.read_once import ReadOnce
from streamlake.spec.data_file import DataFile, FileContent
from streamlake.spec.schema import Schema
from streamlake.spec.types import NestedField, StructType
from streamlake.storage.file_io import FileIO

Array = Any  # numpy arrays: numpy's own typing is not part of the required set-up

_KEPT_BYTES = 256 * 1024 * 1024
_BATCH_ROWS = 1 << 18
_READERS = 4


@dataclass(frozen=True)
class KeyTest:
    """The deletes of one scope as they apply to one data file: those of `rank` or newer."""

    columns: KeyColumns
    keys: DeletedKeys
    rank: int

    def deleted(self, batch: pa.RecordBatch) -> Array:
        """(n,) bool: whether each row's key is deleted."""
        newest = self.keys.newest(self.columns.coded(batch))
        deleted: Array = newest >= self.rank
        return deleted


@dataclass(frozen=True)
class DeletedRows:
    """What is deleted from one data file: positions (ascending int64), and keys of its rows."""

    positions: Array
    keys: tuple[KeyTest, ...]

    def live_positions(self, first: int, rows: int) -> Array:
        """(rows,) bool: which of the rows from position `first` on no position delete names."""
        live: Array = np.ones(rows, dtype=bool)
        edges: Array = np.searchsorted(self.positions, [first, first + rows])
        live[self.positions[edges[0] : edges[1]] - first] = False
        return live

    def live(self, batch: pa.RecordBatch, positions: pa.Array) -> Array:
        """(n,) bool: which rows of a batch are live, given each one's position in the file."""
        at = positions.to_numpy(zero_copy_only=False)
        if len(self.positions):
            found = np.minimum(np.searchsorted(self.positions, at), len(self.positions) - 1)
            live = self.positions[found] != at
        else:
            live = np.ones(len(at), dtype=bool)
        for test in self.keys:
            live &= ~test.deleted(batch)
        return live


class KeyColumns:
    """The columns that one group of equality deletes compares, in the types of the scan."""

    def __init__(self, schema: Schema, field_ids: Sequence[int]) -> None:
        """`schema` holds the fields of these ids, perhaps within structs."""
        self.schema = schema
        self._paths = [field_path(schema, field_id) for field_id in field_ids]
        self._coding = KeyCoding([_comparable(schema, field_id) for field_id in field_ids])

    @cached_property
    def stored_schema(self) -> Schema:
        """The schema to read delete files with: a key column that one of them lacks is damage, not a null."""
        return replace(self.schema, fields=tuple(_required(part) for part in self.schema.fields))

    def coded(self, rows: pa.RecordBatch) -> CodedKeys:
        return self._coding.code([_at(rows, path) for path in self._paths])


class DeleteReader:
    """Reads the delete files of one scan, each once; shared by the threads that read data files."""

    def __init__(self, io: FileIO, schemas: Sequence[Schema], name_mapping: NameMapping | None) -> None:
        """`schemas`: the scan's first, then the table's others, in which dropped key columns are looked up."""
        self._io = io
        self._schemas = schemas
        self._name_mapping = name_mapping
        self._positions: ReadOnce[Mapping[str, Array]] = ReadOnce(_KEPT_BYTES, _positions_size)
        self._keys: ReadOnce[DeletedKeys] = ReadOnce(_KEPT_BYTES, lambda keys: keys.nbytes)

    def key_columns(self, groups: Iterable[EqualityDeletes]) -> Schema:
        """The columns that equality deletes compare; one that the scan's schema lacks comes under a name of its own."""
        return self._columns(sorted({field_id for group in groups for field_id in group.field_ids}))

    def deleted_rows(self, task: FileScanTask) -> DeletedRows:
        """What the delete files of a task delete from its data file."""
        # Positions first: meanwhile another thread may be merging the keys that all of them need.
        positions = self.deleted_positions(task)
        tests = (self._key_test(group, task.sequence_number or 0) for group in task.equality_deletes)
        return DeletedRows(positions, tuple(tests))

    def deleted_positions(self, task: FileScanTask) -> Array:
        """The deleted positions of a task's data file, ascending, each once; without those that equality deletes find."""
        parts = []
        for file in task.delete_files:
            if file.content == FileContent.EQUALITY_DELETES:
                continue
            if file.is_deletion_vector:
                parts.append(read_deletion_vector(self._io, file))
            elif file.file_format == "puffin":
                raise DataInvalidError(f"{file.file_path}: a Puffin file that is no deletion vector")
            else:
                found = self._position_deletes(file).get(task.data_file.file_path)
                parts += [] if found is None else [found]
        return merged_positions(parts)

    def _position_deletes(self, file: DataFile) -> Mapping[str, Array]:
        """Data file path -> positions."""

        def read() -> Mapping[str, Array]:
            return read_position_deletes(self._io, file)

        # A file for one data file is asked for once.
        return read() if file.deletes_from is not None else self._positions.get(file.file_path, read)

    def _key_test(self, group: EqualityDeletes, sequence_number: int) -> KeyTest:
        """Ranks are places among the group's distinct sequence numbers."""
        columns = KeyColumns(self._columns(group.field_ids), group.field_ids)
        numbers = sorted(set(group.sequence_numbers))

        def read() -> DeletedKeys:
            ranks = [bisect_right(numbers, number) - 1 for number in group.sequence_numbers]
            return merged_keys(self._read_keys(columns, list(zip(group.files, ranks, strict=True))))

        return KeyTest(columns, self._keys.get(group, read), bisect_right(numbers, sequence_number))

    def _read_keys(
        self, columns: KeyColumns, files: Sequence[tuple[DataFile, int]]
    ) -> Iterator[tuple[CodedKeys, int]]:
        """The coded keys of every file with its rank; a few files are read at a time."""

        def load(file: DataFile) -> list[CodedKeys]:
            batches = read_data_file(
                self._io,
                file.file_format,
                file.file_path,
                columns.stored_schema,
                name_mapping=self._name_mapping,
                batch_size=_BATCH_ROWS,
            )
            return [columns.coded(batch) for batch in batches]

        with ThreadPoolExecutor(min(_READERS, len(files)), "streamlake-deletes") as pool:
            for at in range(0, len(files), 2 * _READERS):
                some = files[at : at + 2 * _READERS]
                for (_, rank), parts in zip(some, pool.map(load, [file for file, _ in some]), strict=True):
                    for part in parts:
                        yield part, rank

    def _columns(self, ids: Sequence[int]) -> Schema:
        current = self._schemas[0]
        names = [name for field_id, name in current.names_by_id.items() if field_id in ids]
        dropped = [self._dropped(field_id) for field_id in ids if field_id not in current.fields_by_id]
        selected = current.select(names)
        return replace(selected, fields=selected.fields + tuple(dropped))

    def _dropped(self, field_id: int) -> NestedField:
        for schema in self._schemas:
            part = schema.field(field_id)
            if part is not None:
                if field_id in schema.parents:
                    raise FeatureUnsupportedError(
                        f"equality deletes by {schema.name_of(field_id)!r}, a dropped part of a struct, are not read; "
                        "compact the table with another engine first"
                    )
                return replace(part, name=f"_dropped_{field_id}", required=False)
        raise DataInvalidError(
            f"an equality delete file names field id {field_id}, which no schema of the table has"
        )


def _required(part: NestedField) -> NestedField:
    type_ = part.type
    if isinstance(type_, StructType):
        type_ = StructType(tuple(_required(inner) for inner in type_.fields))
    return replace(part, type=type_, required=True, initial_default=None)


def _comparable(schema: Schema, field_id: int) -> NestedField:
    part = schema.fields_by_id[field_id]
    above = [schema.fields_by_id[each].type for each in _ancestors(schema, field_id)]
    if not isinstance(part.type, KEY_TYPES) or not all(isinstance(type_, StructType) for type_ in above):
        raise FeatureUnsupportedError(
            f"equality deletes by {schema.name_of(field_id)!r} of type {part.type} are not read; "
            "compact the table with another engine first"
        )
    return part


def _ancestors(schema: Schema, field_id: int) -> Iterator[int]:
    while (parent := schema.parents.get(field_id)) is not None:
        yield parent
        field_id = parent


def _at(rows: pa.RecordBatch, path: Sequence[str]) -> pa.Array:
    column = rows.column(path[0])
    for name in path[1:]:
        column = pc.struct_field(column, [name])
    return column


def _positions_size(positions: Mapping[str, Array]) -> int:
    return sum(part.nbytes for part in positions.values())
