"""What a compaction leaves for the table's key indexes: its position map as a file that its snapshot names.

A stream that meets the snapshot looks the rows of its index up through the map, and reads none of the new
files, see `pipeline.key_index.covered`. One map serves every index, whatever its key and its branch.
Invariant: the map is complete before a snapshot names it; a table that cannot have one is compacted without.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from contextlib import suppress

from streamlake import ids
from streamlake.commit.marker import INDEX_STATE, POSITION_MAP, PROPERTY_PREFIX
from streamlake.errors import StorageError
from streamlake.index.runs.position_map_ref import PositionMapRef
from streamlake.index.runs.position_map_writer import PositionMapWriter
from streamlake.maintain.compact.group_rewrite import RewrittenGroup
from streamlake.spec.metadata.table_metadata import TableMetadata
from streamlake.table.table import Table

_LOG = logging.getLogger(__name__)


class IndexMap:
    """The position map of one commit of rewritten groups."""

    def __init__(self, table: Table, groups: Sequence[RewrittenGroup]) -> None:
        self._table = table
        self._ref: PositionMapRef | None = None
        if not has_key_index(table.metadata):
            return
        path = table.locations.position_map(ids.new_uuid())
        try:
            writer = PositionMapWriter(table.io, path, table.uuid)
            for each in groups:
                writer.append(each.positions.files, each.positions.moves)
            self._ref = writer.close()
        except StorageError as error:
            _LOG.warning(
                "no position map for the key index of %s was written (%s): streams read the new files",
                table.location,
                error,
            )

    @property
    def summary(self) -> Mapping[str, str]:
        """What the snapshot's summary says of it."""
        return {} if self._ref is None else {POSITION_MAP: self._ref.to_text()}

    def clean_up(self) -> None:
        """Delete it: no snapshot names it."""
        if self._ref is not None:
            with suppress(StorageError):
                self._table.io.delete(self._ref.path)


def has_key_index(metadata: TableMetadata) -> bool:
    """Whether a stream keeps a key index of the table, as far as snapshots and pipelines' properties tell."""
    if any(INDEX_STATE in snapshot.summary for snapshot in metadata.snapshots):
        return True
    properties = metadata.properties.items()
    return any(name.startswith(PROPERTY_PREFIX) and '"index-state"' in value for name, value in properties)
