"""The UpsertTarget: what a writer task of an upsert needs beyond the WriteTarget. Frozen, and can be pickled.

Invariant: `runs` and `live_files` describe the same snapshot of the table, the one that the checkpoint is
resolved against. The commit refuses any other.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from streamlake import clock
from streamlake.index.bucketing import Bucketing
from streamlake.index.message_key import MessageKey
from streamlake.index.runs.run import RunRef
from streamlake.spec.partitioning.partition_spec import UNPARTITIONED, PartitionSpec
from streamlake.write.deletes.live_file import LiveFile
from streamlake.write.deletes.source_rows import KeyDeletes, SourceRows
from streamlake.write.target.target import WriteTarget
from streamlake.write.upsert.upsert_key import UpsertKey

UPSERT = "upsert"
CHANGELOG = "changelog"

EQUALITY = "equality"
POSITION = "position"
COPY_ON_WRITE = "copy-on-write"
NULL = "null"
REJECT = "reject"
FAIL = "fail"
MISSING_VALUE_POLICIES = (FAIL, REJECT, NULL)
"""The policies for a change that leaves out a value which is found nowhere."""

DELETE_MODES = (POSITION, EQUALITY, COPY_ON_WRITE)


@dataclass(frozen=True)
class UpsertTarget:
    """A table as the upsert tasks of one checkpoint see it.

    - Task i gets the keys of bucket i of `buckets`. `runs[i]` (newest first) is what the index knows of them.
      `message_key`: see Bucketing.
    - Tombstones older than `tombstones_since_ms` (epoch milliseconds) may be forgotten; None: none is kept
      longer than needed. `now_ms` is the time at which tombstones are written; None: the clock's.
    - `equality_spec` is the partition spec that equality deletes are written for. With `whole_row` they hold
      all columns, not the key alone.
    - `unset_values` is one of MISSING_VALUE_POLICIES.
    - `truncated_below` is the source position of the last truncate; changes from before it come too late.
    - With `yields`, a change that is ordered by arrival (see `source_positions`) inherits no position from
      the table's row. So it replaces no row whose source position is known, and no row of a later snapshot.
      Such a change is replayed, so it arrives last whatever its age.
    - `key_deletes` says which rows of the `live_files` the equality deletes of other writers leave; None:
      there are none.
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
        """How keys are assigned to buckets."""
        return Bucketing(self.buckets, self.message_key)

    def source_rows(self) -> SourceRows:
        """Finds out which rows that the index knows are still in the table."""
        return SourceRows(self.table.io, self.live_files, self.key_deletes)

    @property
    def time_ms(self) -> int:
        """The time of tombstones that are written now, in epoch milliseconds."""
        return clock.now_ms() if self.now_ms is None else self.now_ms

    @property
    def uses_index(self) -> bool:
        """Whether the key index finds old rows; false for delete mode 'equality'."""
        return self.delete_mode != EQUALITY
