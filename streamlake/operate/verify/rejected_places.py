"""The records of a topic that are in the table's rejects, so that the table is not expected to have them.

Read on the driver from the rejects table, passed to the tasks that read the topic. Invariant: only the record
at exactly that topic, partition and offset is left out; a record that cannot become a row and is not among
the rejects is a difference.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from streamlake.catalog.open import CatalogOption
from streamlake.pipeline.runs.rejected.rejects_table import open_rejects
from streamlake.read.scan import TableScan
from streamlake.source.offsets import OffsetRange, Partition
from streamlake.table.table import Table

Array = Any  # numpy array

_COLUMNS = ("topic", "partition", "offset")


@dataclass(frozen=True)
class RejectedPlaces:
    """Offsets by partition, (n,) int64 and ascending; `name` is the rejects table's (None: there is none)."""

    name: str | None = None
    offsets: Mapping[Partition, Array] = field(default_factory=dict)

    @staticmethod
    def of(rejects: Table | None) -> RejectedPlaces:
        """The records in a rejects table, as it is now."""
        if rejects is None:
            return NO_REJECTS
        rows = TableScan(rejects, columns=list(_COLUMNS)).to_arrow()
        grouped = rows.group_by(["topic", "partition"]).aggregate([("offset", "list")])
        parts = zip(grouped.column("topic").to_pylist(), grouped.column("partition").to_pylist(), strict=True)
        offsets = (each.values.to_numpy() for each in grouped.column("offset_list"))
        return RejectedPlaces(
            rejects.name, {part: np.unique(found) for part, found in zip(parts, offsets, strict=True)}
        )

    def within(self, ranges: Iterable[OffsetRange]) -> int:
        """The number of records in these ranges that are among the rejects."""
        count = 0
        for piece in ranges:
            offsets = self.offsets.get((piece.topic, piece.partition))
            if offsets is not None:
                count += int(np.searchsorted(offsets, piece.until) - np.searchsorted(offsets, piece.start))
        return count

    def left(self, raw: pa.RecordBatch, topic: str, partition: int) -> pa.RecordBatch:
        """The records of a raw batch of this partition without those in the rejects."""
        offsets = self.offsets.get((topic, partition))
        if offsets is None:
            return raw
        kept = ~np.isin(raw.column("offset").to_numpy(), offsets)
        return raw if kept.all() else raw.filter(pa.array(kept))


NO_REJECTS = RejectedPlaces()


def rejected_places(table: str | Table, catalog: CatalogOption) -> RejectedPlaces:
    """The rejects of a table, by its location or its name in `catalog`.

    A loaded table of a catalog that is not given has a name, and no place to look for its rejects: then there
    are none.
    """
    name = table if isinstance(table, str) else table.name
    if not isinstance(table, str) and catalog is None and name != table.location:
        return NO_REJECTS
    return RejectedPlaces.of(open_rejects(name, catalog))
