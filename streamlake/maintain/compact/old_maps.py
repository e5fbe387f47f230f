"""The removal of position maps that nothing needs any more.

Maintenance writes the maps, so maintenance deletes them; streams leave them alone. A map is needed while a
snapshot names it, or a state of a key index whose runs have not been merged since. Invariant: a map that a
state may need stays, so where a state cannot be read, all of them do.
"""

from __future__ import annotations

import logging

from streamlake import clock
from streamlake.commit.marker import POSITION_MAP
from streamlake.errors import StreamlakeError
from streamlake.index.runs.position_map_ref import PositionMapRef
from streamlake.index.state import IndexState
from streamlake.storage.file_info import FileInfo
from streamlake.storage.locations import POSITION_MAP_SUFFIX
from streamlake.table.table import Table

_LOG = logging.getLogger(__name__)

UNNEEDED_MS = 24 * 3600 * 1000
"""Age in milliseconds below which a map may be of a compaction that is about to be committed."""


def remove_old_maps(table: Table) -> int:
    """Delete the position maps of a table that are a day old and that nothing names; gives their number.

    They are only in the way, so an error is logged and the rest is left to the next compaction.
    """
    count = 0
    try:
        for path in _unneeded(table):
            table.io.delete(path)
            count += 1
    except StreamlakeError as error:
        _LOG.warning("old position maps of %s were not removed: %s", table.location, error)
    return count


def _unneeded(table: Table) -> list[str]:
    listed = list(table.io.list_prefix(table.locations.index_directory))
    before = clock.now_ms() - UNNEEDED_MS
    old = [info for info in listed if _is_map(info) and info.modified_ms < before]
    needed = _named_by_snapshots(table) if old else set()
    old = [info for info in old if _name(info.path) not in needed]
    if old:
        for info in listed:
            if info.path.endswith(".json"):
                state = IndexState.from_bytes(table.io.read_bytes(info.path), info.path)
                needed.update(_name(each.path) for each in state.maps)
    return [info.path for info in old if _name(info.path) not in needed]


def _named_by_snapshots(table: Table) -> set[str]:
    texts = (snapshot.summary.get(POSITION_MAP) for snapshot in table.refresh().metadata.snapshots)
    return {_name(PositionMapRef.from_text(text).path) for text in texts if text is not None}


def _is_map(info: FileInfo) -> bool:
    return info.path.endswith(POSITION_MAP_SUFFIX)


def _name(path: str) -> str:
    return path.rpartition("/")[2]
