"""From the rows that snapshots removed and added to the changes that are returned.

Rows that belong together (one key, or equal values) have to be in one call; `ChangeColumns.parts` says how to
part them before. Invariant: what comes out depends on the rows and their order, not on how they were batched.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from streamlake.read.changes.change_columns import ChangeColumns
from streamlake.read.changes.change_tasks import ChangedSnapshot
from streamlake.read.changes.netting import Array, net_changes


@dataclass(frozen=True, eq=False)
class TaskRows:
    """Rows of one task as they were read, the index of its snapshot, and whether they were added."""

    snapshot: int
    is_added: bool
    rows: pa.RecordBatch


def paired_changes(
    columns: ChangeColumns, snapshots: Sequence[ChangedSnapshot], found: Sequence[TaskRows]
) -> pa.Table:
    """The changes of the snapshots, netted together.

    The rows come in the order of the snapshots and, of one snapshot, those that it removed before those that
    it added.
    """
    batches = [each.rows for each in found if each.rows.num_rows]
    if not batches:
        return columns.arrow_schema.empty_table()
    table = pa.Table.from_batches(batches).combine_chunks()
    sizes = [each.rows.num_rows for each in found]
    added: Array = np.repeat([each.is_added for each in found], sizes)
    snapshot_of: Array = np.repeat([each.snapshot for each in found], sizes)
    identities = columns.identities(table)
    compared = columns.comparison(table, identities)
    net = net_changes(added, identities, compared, keyed=bool(columns.key_ids))
    return columns.changes(table, net, tuple(snapshots), snapshot_of)
