"""Index entries from the live rows of data files: builds a key index, and adds other writers' files to one.

Each part reads the key columns of some data files, with deletes applied, and writes one run per bucket. Small
work is done on the driver, large work by Spark tasks; then a second step merges the parts of each bucket.
Invariant: the result depends on the table alone.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import SparkSession

from streamlake import ids
from streamlake.errors import StorageError
from streamlake.formats.columns.name_mapping import NAME_MAPPING_PROPERTY, NameMapping
from streamlake.index.bucketing import Bucketing
from streamlake.index.keys.keys import Keys, concat_keys
from streamlake.index.keys.sequence_values import SequenceCodec, SequenceValues, concat_sequence_values
from streamlake.index.runs.entries import NO_SEQUENCE, RunFile, sort_entries
from streamlake.index.runs.merge import merge_runs
from streamlake.index.runs.run import RunRef, open_run, write_run
from streamlake.index.runs.run_writer import RunWriter
from streamlake.pipeline.spark.file_parts import file_parts
from streamlake.pipeline.spark.task_outcome import run_parts
from streamlake.read.column_selection import select_columns
from streamlake.read.deletes import DeleteReader
from streamlake.read.file_rows import FileRows
from streamlake.read.planning import FileScanTask
from streamlake.spec.types.schema import Schema
from streamlake.storage.file_io import FileIO
from streamlake.storage.locations import TableLocations
from streamlake.table.table import Table
from streamlake.write.upsert.upsert_key import UpsertKey

Array = Any  # numpy array

_ROWS_ON_DRIVER = 500_000
_ROWS_PER_PART = 4_000_000
_BATCH_ROWS = 262_144
_POSITION = "_pos"


@dataclass(frozen=True)
class IndexedRows:
    """Makes entries from rows of one table; travels to executors. `schemas`: the current one first."""

    io: FileIO
    locations: TableLocations
    schemas: tuple[Schema, ...]
    name_mapping: str | None
    key: UpsertKey
    bucketing: Bucketing

    @staticmethod
    def of(table: Table, key: UpsertKey, bucketing: Bucketing) -> IndexedRows:
        """The IndexedRows of a table."""
        others = sorted(table.schemas.values(), key=lambda each: -each.schema_id)
        return IndexedRows(
            table.io,
            table.locations,
            (table.schema, *others),
            table.properties.get(NAME_MAPPING_PROPERTY),
            key,
            bucketing,
        )

    def index(self, session: SparkSession | None, tasks: Sequence[FileScanTask]) -> list[RunRef]:
        """Runs with an entry for every live row of the files; by Spark, given many rows and a session."""
        rows = _rows(tasks)
        if session is None or not needs_spark(tasks):
            return [ref for part in file_parts(tasks, _ROWS_PER_PART) for ref in self.index_part(part)]
        workers = max(session.sparkContext.defaultParallelism, 1)
        parts = file_parts(tasks, min(_ROWS_PER_PART, -(-rows // workers)))
        refs = [ref for found in run_parts(session, self.index_part, parts) for ref in found]
        by_bucket = [[ref for ref in refs if ref.bucket == bucket] for bucket in range(self.bucketing.count)]
        several = [found for found in by_bucket if len(found) > 1]
        merged = [found[0] for found in by_bucket if len(found) == 1]
        merged += run_parts(session, self.merge_bucket, several)
        for found in several:
            for ref in found:
                with contextlib.suppress(StorageError):
                    self.io.delete(ref.path)
        return merged

    def index_part(self, tasks: Sequence[FileScanTask]) -> list[RunRef]:
        """The runs of some files, at most one per bucket."""
        reader = self.reader((*self.key.stored_columns, _POSITION))
        entries = self.collector()
        for number, task in enumerate(tasks):
            for batch in reader.read(task):
                files = np.full(batch.num_rows, number, dtype=np.int32)
                entries.add(batch, files, batch.column(_POSITION).to_numpy(zero_copy_only=False))
        return entries.runs([RunFile(task.data_file.file_path, own=False) for task in tasks])

    def merge_bucket(self, refs: Sequence[RunRef]) -> RunRef:
        """One run with all entries of some runs of a bucket."""
        runs = [open_run(self.io, ref) for ref in refs]
        sink = RunWriter(self.io, self.new_run(), refs[0].bucket, self.bucketing.count)
        return merge_runs(runs, _all_live, sink, is_oldest=True)

    def reader(self, columns: Sequence[str]) -> FileRows:
        """A reader of these columns of the live rows of data files."""
        mapping = None if self.name_mapping is None else NameMapping.from_json(self.name_mapping)
        deletes = DeleteReader(self.io, self.schemas, mapping)
        return FileRows(self.io, select_columns(self.schemas[0], columns), deletes, mapping, _BATCH_ROWS)

    def collector(self) -> EntryCollector:
        """A collector for the entries of rows that were read."""
        return EntryCollector(self)

    def new_run(self) -> str:
        """The path of a new run."""
        return self.locations.index_run(ids.new_uuid())


class EntryCollector:
    """Collects keys and positions of rows, batch by batch, and writes them as runs of the key index."""

    def __init__(self, rows: IndexedRows) -> None:
        self._rows = rows
        self._keys: list[Keys] = []
        self._guards: list[SequenceValues] = []
        self._flags: list[Array] = []
        self._files: list[Array] = []
        self._positions: list[Array] = []

    def add(self, rows: pa.RecordBatch | pa.Table, files: Array, positions: Array) -> None:
        """Add n rows that lie at `positions` of the files with the numbers `files`, both (n,)."""
        key = self._rows.key
        self._keys.append(key.codec.encode([rows.column(name) for name in key.columns]))
        unknown: Array = np.zeros(rows.num_rows, dtype=bool)
        if key.sequence_codec is not None:
            if key.keeps_sequence_values:
                guards, unknown = _known_guards(
                    key.sequence_codec, [rows.column(name) for name in key.sequence_by]
                )
            else:
                unknown = ~unknown
                guards = _blank(key.sequence_codec).take(np.zeros(rows.num_rows, dtype=np.int64))
            self._guards.append(guards)
        self._flags.append(np.where(unknown, NO_SEQUENCE, 0).astype(np.uint8))
        self._files.append(files)
        self._positions.append(positions)

    def runs(self, paths: Sequence[RunFile]) -> list[RunRef]:
        """Write the runs, at most one per bucket; `paths` are the files by number."""
        if not sum(map(len, self._files)):
            return []
        entries = sort_entries(
            concat_keys(self._keys),
            np.concatenate(self._files),
            np.concatenate(self._positions),
            np.concatenate(self._flags),
            paths,
            sequence_values=concat_sequence_values(self._guards) if self._guards else None,
        )
        rows = self._rows
        buckets = rows.bucketing
        return [
            write_run(rows.io, rows.new_run(), part, bucket, buckets.count)
            for bucket, part in enumerate(buckets.split(entries, rows.key.codec))
            if len(part)
        ]


def needs_spark(tasks: Sequence[FileScanTask]) -> bool:
    """Whether files have so many rows that Spark tasks index them, where there is a session."""
    return _rows(tasks) > _ROWS_ON_DRIVER


def _rows(tasks: Sequence[FileScanTask]) -> int:
    return sum(task.data_file.record_count for task in tasks)


def _all_live(path: str) -> bool:
    return True


def _known_guards(
    codec: SequenceCodec, columns: Sequence[pa.Array | pa.ChunkedArray]
) -> tuple[SequenceValues, Array]:
    """The sequence values of rows in the table, and (n,) bool: those that a null leaves unknown."""
    unknown: Array = np.zeros(len(columns[0]), dtype=bool)
    for column in columns:
        if column.null_count:
            unknown |= column.is_null().to_numpy(zero_copy_only=False)
    if not unknown.any():
        return codec.encode(columns), unknown
    known = codec.encode([column.filter(pa.array(~unknown)) for column in columns])
    place = np.where(unknown, len(known), np.cumsum(~unknown) - 1)
    return concat_sequence_values([known, _blank(codec)]).take(place), unknown


def _blank(codec: SequenceCodec) -> SequenceValues:
    """A placeholder for an unknown sequence value."""
    return SequenceValues(np.zeros(1, np.int64) if codec.is_numeric else pa.array([b""], pa.large_binary()))
