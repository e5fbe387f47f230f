"""Reads delete files and finds the rows of a data file that they delete (spec: Delete Formats).

Position deletes and deletion vectors become sorted positions, the equality deletes of a scope become one
structure of keys. Each is read once per scan and applied to whole batches. Invariant: a delete file that
cannot be read is an error, never ignored.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cached_property
from threading import Lock
from typing import Any, Generic, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streamlake.errors import DataInvalidError, FeatureUnsupportedError
from streamlake.formats.columns.name_mapping import NameMapping
from streamlake.formats.deletes.deletion_vectors import read_deletion_vector
from streamlake.formats.deletes.position_deletes import merged_positions, read_position_deletes
from streamlake.formats.readers import read_data_file
from streamlake.index.keys.key_codec import KEY_TYPES
from streamlake.read.column_selection import field_path
from streamlake.read.delete_index import EqualityDeletes
from streamlake.read.deleted_keys import CodedKeys, DeletedKeys, KeyCoding, merged_keys
from streamlake.read.planning import FileScanTask
from streamlake.spec.metadata.data_file import DataFile, FileContent
from streamlake.spec.types.data_types import NestedField, StructType
from streamlake.spec.types.schema import Schema
from streamlake.storage.file_io import FileIO

Value = TypeVar("Value")


Array = np.ndarray[Any, Any]
_KEPT_BYTES = 256 * 1024 * 1024
_BATCH_ROWS = 1 << 18
_READERS = 4


class ReadOnce(Generic[Value]):
    """A cache that keeps the most recently used values up to a limit; `size` gives the bytes of a value."""

    def __init__(self, limit_bytes: int, size: Callable[[Value], int]) -> None:
        self._limit = limit_bytes
        self._size = size
        self._lock = Lock()
        self._values: OrderedDict[Hashable, Future[Value]] = OrderedDict()
        self._bytes: dict[Hashable, int] = {}

    def get(self, key: Hashable, read: Callable[[], Value]) -> Value:
        """The value of `key`; `read` makes it if it is not cached.

        An error of `read` goes to every waiting caller.
        """
        with self._lock:
            known = self._values.get(key)
            if known is not None:
                self._values.move_to_end(key)
            else:
                mine = self._values[key] = Future()
        if known is not None:
            return known.result()
        try:
            value = read()
        except BaseException as error:
            with self._lock:
                del self._values[key]
            mine.set_exception(error)
            raise
        mine.set_result(value)
        with self._lock:
            self._bytes[key] = self._size(value)
            self._shrink(key)
        return value

    def _shrink(self, newest: Hashable) -> None:
        total = sum(self._bytes.values())
        for key in [key for key in self._values if key in self._bytes and key != newest]:
            if total <= self._limit:
                return
            total -= self._bytes.pop(key)
            del self._values[key]


@dataclass(frozen=True)
class KeyTest:
    """The equality deletes of one scope as they apply to one data file: those of `rank` or newer."""

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
    """The deleted rows of one data file: positions (ascending int64), and tests of keys."""

    positions: Array
    keys: tuple[KeyTest, ...]

    def live_positions(self, first: int, rows: int) -> Array:
        """(rows,) bool: which of the rows from position `first` on are in no position delete."""
        live: Array = np.ones(rows, dtype=bool)
        edges: Array = np.searchsorted(self.positions, [first, first + rows])
        live[self.positions[edges[0] : edges[1]] - first] = False
        return live

    def live(self, batch: pa.RecordBatch, positions: pa.Array) -> Array:
        """(n,) bool: which rows of a batch are live, given the position of each in the file."""
        at = positions.to_numpy(zero_copy_only=False)
        if len(self.positions):
            found = np.minimum(np.searchsorted(self.positions, at), len(self.positions) - 1)
            live: Array = self.positions[found] != at
        else:
            live = np.ones(len(at), dtype=bool)
        for test in self.keys:
            live &= ~test.deleted(batch)
        return live


class KeyColumns:
    """The columns that one group of equality deletes compares, in the types of the scan."""

    def __init__(self, schema: Schema, field_ids: Sequence[int]) -> None:
        """`schema` holds the fields of these ids, possibly within structs."""
        self.schema = schema
        self._paths = [field_path(schema, field_id) for field_id in field_ids]
        self._coding = KeyCoding([_comparable(schema, field_id) for field_id in field_ids])

    @cached_property
    def stored_schema(self) -> Schema:
        """The schema to read delete files with.

        A key column that a delete file lacks is damage, not a null.
        """
        return replace(self.schema, fields=tuple(_required(part) for part in self.schema.fields))

    def coded(self, rows: pa.RecordBatch) -> CodedKeys:
        """The coded keys of a batch of rows."""
        return self._coding.code([_at(rows, path) for path in self._paths])


class DeleteReader:
    """Reads the delete files of one scan, each once; shared by the threads that read data files."""

    def __init__(self, io: FileIO, schemas: Sequence[Schema], name_mapping: NameMapping | None) -> None:
        """`schemas`: the scan's first, then the table's others, in which dropped key columns are found."""
        self._io = io
        self._schemas = schemas
        self._name_mapping = name_mapping
        self._positions: ReadOnce[Mapping[str, Array]] = ReadOnce(_KEPT_BYTES, _positions_size)
        self._keys: ReadOnce[DeletedKeys] = ReadOnce(_KEPT_BYTES, lambda keys: keys.nbytes)

    def key_columns(self, groups: Iterable[EqualityDeletes]) -> Schema:
        """The columns that equality deletes compare.

        A column that the scan's schema lacks gets a name of its own.
        """
        return self._columns(sorted({field_id for group in groups for field_id in group.field_ids}))

    def deleted_rows(self, task: FileScanTask) -> DeletedRows:
        """The rows of a task's data file that its delete files delete."""
        # Positions first: another thread may be merging the keys that all threads need.
        positions = self.deleted_positions(task)
        tests = (self._key_test(group, task.sequence_number or 0) for group in task.equality_deletes)
        return DeletedRows(positions, tuple(tests))

    def deleted_positions(self, task: FileScanTask) -> Array:
        """The deleted positions of a task's data file, ascending, each once.

        Rows deleted by equality deletes are not included.
        """
        parts = []
        for file in task.delete_files:
            if file.content == FileContent.EQUALITY_DELETES:
                continue
            if file.is_deletion_vector:
                parts.append(read_deletion_vector(self._io, file))
            elif file.file_format == "puffin":
                raise DataInvalidError(f"{file.file_path}: a Puffin file that is not a deletion vector")
            else:
                found = self._position_deletes(file).get(task.data_file.file_path)
                parts += [] if found is None else [found]
        return merged_positions(parts)

    def _position_deletes(self, file: DataFile) -> Mapping[str, Array]:
        """The deleted positions by data file path."""

        def read() -> Mapping[str, Array]:
            return read_position_deletes(self._io, file)

        # A delete file for one data file is needed only once.
        return read() if file.deletes_from is not None else self._positions.get(file.file_path, read)

    def _key_test(self, group: EqualityDeletes, sequence_number: int) -> KeyTest:
        """The test of one group; ranks are indexes into the group's distinct sequence numbers."""
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
                        f"equality deletes by {schema.name_of(field_id)!r}, a dropped part of a struct, are "
                        "not read; compact the table with another engine first"
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
