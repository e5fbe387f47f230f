"""Rows of a data file that delete files take out (spec: Delete Formats).

Position deletes and deletion vectors become sorted positions, equality deletes become sets of keys; both are read
once per scan and applied to whole batches. Invariant: a delete file that cannot be read is an error, never ignored.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from threading import Lock
from typing import Any

import numpy as np
import pyarrow as pa

from streamlake.errors import DataInvalidError, FeatureUnsupportedError
from streamlake.formats.deletion_vectors import read_deletion_vector
from streamlake.formats.name_mapping import NameMapping
from streamlake.formats.position_deletes import merged_positions, read_position_deletes
from streamlake.formats.readers import read_data_file
from streamlake.read.key_sets import KeySet
from streamlake.spec.data_file import DataFile, FileContent
from streamlake.spec.schema import Schema
from streamlake.spec.types import NestedField
from streamlake.storage.file_io import FileIO


@dataclass(frozen=True)
class DeletedRows:
    """What is deleted from one data file: positions, and key sets over columns of the rows."""

    positions: np.ndarray[Any, np.dtype[np.int64]]
    keys: tuple[KeySet, ...]

    def live(self, batch: pa.RecordBatch, positions: pa.Array) -> pa.Array | None:
        """Which rows of a batch are live; None when all are."""
        dead = np.zeros(batch.num_rows, dtype=bool)
        if len(self.positions):
            at = positions.to_numpy(zero_copy_only=False)
            found = np.minimum(np.searchsorted(self.positions, at), len(self.positions) - 1)
            dead |= self.positions[found] == at
        for keys in self.keys:
            dead |= keys.contains(batch)
        return pa.array(~dead) if dead.any() else None


class DeleteReader:
    """Reads the delete files of one scan, each once; shared by the threads that read data files."""

    def __init__(self, io: FileIO, schemas: Sequence[Schema], name_mapping: NameMapping | None) -> None:
        """`schemas`: the scan's first, then the table's others, in which dropped key columns are looked up."""
        self._io = io
        self._schemas = schemas
        self._name_mapping = name_mapping
        self._lock = Lock()
        self._positions: dict[str, Mapping[str, Any]] = {}
        self._keys: dict[tuple[str, ...], KeySet] = {}

    def key_columns(self, delete_files: Iterable[DataFile]) -> Schema:
        """The columns that equality deletes compare; one that the scan's schema lacks comes under a name of its own."""
        ids = {field_id for file in delete_files for field_id in _equality_ids(file)}
        return self._columns(sorted(ids))

    def deleted_rows(self, data_file: DataFile, delete_files: Sequence[DataFile]) -> DeletedRows:
        """What the delete files that apply to a data file delete from it."""
        found: list[Any] = []
        by_ids: defaultdict[tuple[int, ...], list[DataFile]] = defaultdict(list)
        for file in delete_files:
            if file.content == FileContent.EQUALITY_DELETES:
                by_ids[tuple(sorted(_equality_ids(file)))].append(file)
            elif file.is_deletion_vector:
                found.append(read_deletion_vector(self._io, file))
            elif file.file_format == "puffin":
                raise DataInvalidError(f"{file.file_path}: a Puffin file that is no deletion vector")
            else:
                positions = self._position_deletes(file).get(data_file.file_path)
                found += [] if positions is None else [positions]
        return DeletedRows(
            merged_positions(found), tuple(self._key_set(ids, files) for ids, files in by_ids.items())
        )

    def _position_deletes(self, file: DataFile) -> Mapping[str, Any]:
        """Data file path -> its deleted positions."""
        with self._lock:
            known = self._positions.get(file.file_path)
            if known is None:
                known = self._positions[file.file_path] = read_position_deletes(self._io, file)
            return known

    def _key_set(self, ids: tuple[int, ...], files: Sequence[DataFile]) -> KeySet:
        cache_key = tuple(sorted(file.file_path for file in files))
        with self._lock:
            known = self._keys.get(cache_key)
            if known is None:
                schema = self._columns(ids)
                rows = [
                    batch
                    for file in files
                    for batch in read_data_file(
                        self._io, file.file_format, file.file_path, schema, name_mapping=self._name_mapping
                    )
                ]
                paths = [self._path(schema, field_id) for field_id in ids]
                known = self._keys[cache_key] = KeySet(paths, rows)
            return known

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

    @staticmethod
    def _path(schema: Schema, field_id: int) -> tuple[str, ...]:
        names = [schema.fields_by_id[field_id].name]
        while (parent := schema.parents.get(field_id)) is not None:
            names.append(schema.fields_by_id[parent].name)
            field_id = parent
        return tuple(reversed(names))


def _equality_ids(file: DataFile) -> tuple[int, ...]:
    if file.content != FileContent.EQUALITY_DELETES:
        return ()
    if not file.equality_ids:
        raise DataInvalidError(
            f"{file.file_path}: an equality delete file without equality ids; the table's metadata is damaged"
        )
    return file.equality_ids
