"""The stream reader of the format "streamlake": offsets and splits on the driver, rows in tasks.

Place in the flow: Spark makes one reader in a Python process beside the driver and keeps it for the life of
the query; others, made from the same options, only read. Offsets are those of TableOffset as JSON, and `{}`
before the first micro-batch. Invariant: rows have the schema that the table had at `load()`, whatever it is
when a micro-batch is planned or replayed.

Spark 4.2 and later give the start of a micro-batch and its limit, and say when a query is to end
(`availableNow`). Before that a reader is asked for an offset and does not know what for, so a micro-batch is
all that is there, and what would cut it is refused (see `admission_control`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from importlib import import_module
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from streamlake.errors import FeatureUnsupportedError, InvalidOptionError
from streamlake.pipeline.iceberg.frames.frame_options import FrameOptions
from streamlake.pipeline.iceberg.frames.table_frame import TableFrame
from streamlake.pipeline.iceberg.snapshot_enumerator import SnapshotEnumerator
from streamlake.pipeline.iceberg.table_cursor import offset_from_json, offset_to_json
from streamlake.pipeline.spark.admission_control import (
    ADMISSION_MODULE,
    DIRECT_PATH,
    HAS_ADMISSION_CONTROL,
    TABLE_FORMAT,
)
from streamlake.read.splits.split_protocols import TaskScan, TaskSplit
from streamlake.source.iceberg.iceberg_options import ReadLimits
from streamlake.source.iceberg.iceberg_source import IcebergSource
from streamlake.source.iceberg.table_offset import TableOffset
from streamlake.table.table import Table

_CUTTING = (
    "max-planning-snapshot-count",
    "max-files-per-trigger",
    "max-rows-per-trigger",
    "max-bytes-per-trigger",
)
_NO_LIMIT = 1 << 62

_AvailableNow: Any = (
    import_module(ADMISSION_MODULE).SupportsTriggerAvailableNow if HAS_ADMISSION_CONTROL else object
)


@dataclass
class StreamPartition(InputPartition):
    """What one task of a micro-batch reads, and how."""

    scan: TaskScan
    split: TaskSplit


class TableStreamReader(DataSourceStreamReader, _AvailableNow):
    """Reads one stream.

    Raises InvalidOptionError for options of batches, FeatureUnsupportedError for what this Spark cannot do.
    """

    def __init__(self, options: FrameOptions, frame: TableFrame, table: Table) -> None:
        source = options.source.as_stream()
        for name, value in (("limit", options.limit), ("metadata-table", options.metadata_table)):
            if value is not None:
                raise InvalidOptionError(
                    f"{TABLE_FORMAT}: {name} belongs to a batch, and this is a stream; leave it out"
                )
        if not HAS_ADMISSION_CONTROL:
            check_uncut(source)
        self._enumerator: SnapshotEnumerator | None = SnapshotEnumerator(
            table, source, schema_id=frame.schema_id, has_row_ids=frame.has_row_ids
        )
        self._limits = source.settings.limits
        self._schema_id = frame.schema_id
        self._has_row_ids = frame.has_row_ids
        self._rows = frame.rows
        self._known: TableOffset | None = None
        self._ends_at: int | None = None
        self._ends_at_once = False

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        """The offset before the first micro-batch; the end of that one says where reading begins."""
        return offset_to_json(None)

    def latestOffset(self, start: Any = None, limit: Any = None) -> dict[str, Any]:  # noqa: N802
        """Where the next micro-batch ends; `start` where there is nothing new.

        Without arguments (before Spark 4.2): after all that is there. Raises as SnapshotEnumerator.
        """
        if limit is None:
            self._known = _all_after(self._known, self._planner())
            return offset_to_json(self._known)
        if self._ends_at_once:
            return dict(start)
        known = offset_from_json(start)
        limits = ReadLimits() if type(limit).__name__ == "ReadAllAvailable" else self._limits
        if known is None:
            return offset_to_json(self._planner().first(target=self._ends_at, limits=limits))
        return offset_to_json(self._planner().next(known, target=self._ends_at, limits=limits))

    def getDefaultReadLimit(self) -> Any:  # noqa: N802
        """What Spark calls `latestOffset` with, unless its trigger wants everything at once."""
        kinds = import_module(ADMISSION_MODULE)
        if self._limits == ReadLimits():
            return kinds.ReadAllAvailable()
        # Spark's limits have one dimension; all that are given are kept by the enumerator.
        return kinds.ReadMaxRows(self._limits.rows or _NO_LIMIT)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Take the branch's newest snapshot for the end of the query."""
        self._ends_at = self._planner().head()
        self._ends_at_once = self._ends_at is None

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """One partition per split of the micro-batch between two offsets.

        At a restart Spark asks for those between the checkpoint's last offset and itself.
        """
        last = offset_from_json(end)
        if self._known is None:
            self._known = last
        if last is None or start == end:
            return []
        # Where a file is in the order does not depend on the columns that it is read with.
        pairing = replace(last.planning.pairing, has_row_ids=self._has_row_ids)
        planning = replace(last.planning, schema_id=self._schema_id)
        if planning.read_mode == "changes":
            planning = replace(planning, pairing=pairing)
        planned = replace(last, planning=planning)
        planner = self._planner()
        splits = planner.splits(offset_from_json(start), planned)
        scan = planner.split_scan(planned)
        return [StreamPartition(scan, split) for split in splits]

    def read(self, partition: StreamPartition) -> Iterator[pa.RecordBatch]:
        """The rows of a partition. Raises DataInvalidError, StorageError."""
        return self._rows.read(partition.scan, [partition.split])

    def commit(self, end: dict[str, Any]) -> None:
        """Nothing to do: Spark's checkpoint is the only place where offsets are kept."""

    def stop(self) -> None:
        """Nothing to do: nothing is kept open between calls."""

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_enumerator": None, "_known": None}

    def _planner(self) -> SnapshotEnumerator:
        assert self._enumerator is not None
        return self._enumerator


def check_uncut(source: IcebergSource) -> None:
    """Refuse options by which a micro-batch is less than what is there.

    Raises FeatureUnsupportedError.
    """
    for name in _CUTTING:
        if name in source.options:
            raise FeatureUnsupportedError(
                f"{TABLE_FORMAT}: {name} needs Spark 4.2: before it, Spark does not tell a Python source "
                "how much to read, and an availableNow query would end after the first micro-batch; leave it "
                f"out, or read the table directly: {DIRECT_PATH}"
            )
    if not source.settings.fail_on_data_loss:
        raise FeatureUnsupportedError(
            f"{TABLE_FORMAT}: fail-on-data-loss=false needs Spark 4.2: what is left out is a micro-batch of "
            "its own, after which an availableNow query would end before it; leave it out, or read the "
            f"table directly: {DIRECT_PATH}"
        )


def _all_after(known: TableOffset | None, planner: SnapshotEnumerator) -> TableOffset:
    """The offset after all that is there.

    Where a snapshot cannot be read it raises at once, and reads nothing before it: an availableNow query
    would end in front of it without an error.
    """
    found = planner.first() if known is None else known
    start = None if known is not None else found.start
    head = planner.head()
    while True:
        after = planner.next(found, target=head)
        if after == found:
            return found
        if start is not None:
            after = replace(after, start=start)
        if found.position.within is not None and after.planning != found.planning:
            # The rest of a snapshot that was begun with other options is a micro-batch of its own.
            return after
        found = after
