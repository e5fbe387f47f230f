"""The UpsertTarget: what a writer task of an upsert needs beyond the WriteTarget, frozen and picklable.

Invariant: `runs` and `live_files` describe the same snapshot of the table, the one that the checkpoint is resolved
against; the commit refuses any other.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from streamlake import clock
from streamlake.index.bucketing import Bucketing
from streamlake.index.message_key import MessageKey
from streamlake.index.run import RunRef
from streamlake.spec.partition_spec import UNPARTITIONED, PartitionSpec
from streamlake.write.live_file import LiveFile
from streamlake.write.source_rows import KeyDeletes, SourceRows
from streamlake.write.target import WriteTarget
from streamlake.write.upsert_key import UpsertKey

UPSERT = "upsert"
CHANGELOG = "changelog"

EQUALITY = "equality"
POSITION = "position"
COPY_ON_WRITE = "copy-on-write"
NULL = "null"
REJECT = "reject"
FAIL = "fail"
UNSET_POLICIES = (FAIL, REJECT, NULL)
"""What becomes of a change that leaves a value out which is nowhere to be found."""

DELETE_MODES = (POSITION, EQUALITY, COPY_ON_WRITE)


@dataclass(frozen=True)
class UpsertTarget:
    """A table as the upsert tasks of one checkpoint see it.

    Task i gets the keys of bucket i of `buckets`, and `runs[i]` (newest first) is what the index knows of them. Tombstones older
    than `tombstones_since_ms` (epoch milliseconds) may be forgotten; None: none is kept longer than needed. `now_ms` is what time
    it is for tombstones; None: the clock's.
    `equality_spec` is the partition spec that equality deletes are written for; with `whole_row` they hold all
    columns, not the key alone. `unset_values` is one of UNSET_POLICIES. Changes
    from before `truncated_below`, the place of the last truncate in the database's log, come too late. With `yields` a change that
    goes by its arrival (see `log_places`) replaces no row whose place is known: it is replayed, so it arrives last
    whatever its age. `message_key`: see Bucketing. `key_deletes` tells what equality deletes of others leave of the
    `live_files`; None: they have none.
    """

    table: WriteTarget
    mode: str
    delete_mode: str
    key: UpsertKey
    buckets: int
    runs: Mapping[int, tuple[RunRef, ...]] = field(default_factory=dict)
    live_files: Mapping[str, LiveFile] = field(default_factory=dict)
    tombstones_since_ms: int | None = None
    equality_spec: PartitionSpec = UNPARTITIONED
    whole_row: bool = False
    unset_values: str = FAIL
    truncated_below: int | str | None = None
    message_key: MessageKey | None = None
    yields: bool = False
    now_ms: int | None = None
    key_deletes: KeyDeletes | None = None

    @property
    def bucketing(self) -> Bucketing:
        """Which bucket each key is in."""
        return Bucketing(self.buckets, self.message_key)

    def source_rows(self) -> SourceRows:
        """Which rows that the index knows are still in the table."""
        return SourceRows(self.table.io, self.live_files, self.key_deletes)

    @property
    def time_ms(self) -> int:
        """When tombstones of now are written."""
        return clock.now_ms() if self.now_ms is None else self.now_ms

    @property
    def uses_index(self) -> bool:
        """Whether old rows are found by the key index."""
        return self.delete_mode != EQUALITY
