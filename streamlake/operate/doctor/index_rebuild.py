"""Rebuilds the key index of a branch, and names it in a table property for the stream's next run.

It is a command between runs; a running stream takes up the new index with its next checkpoint. Invariant: the
index is of the branch's head that the property says, whatever is committed meanwhile.
"""

from __future__ import annotations

from pyspark.sql import SparkSession

from streamlake.errors import InvalidOptionError
from streamlake.index.bucketing import Bucketing
from streamlake.index.state import IndexState
from streamlake.pipeline.key_index.index_states import rebuilt_property
from streamlake.pipeline.key_index.table_index import TableIndex
from streamlake.table.table import Table
from streamlake.table.updates.update_properties import UpdateProperties
from streamlake.write.upsert.upsert_key import UpsertKey


def rebuild_index(
    table: Table, branch: str, key: UpsertKey, bucketing: Bucketing, session: SparkSession | None
) -> IndexState:
    """Build, store and name the index; with Spark where a session is given and there are many rows.

    Raises InvalidOptionError when the branch has no snapshot.
    """
    index = TableIndex(table, branch, key, bucketing)
    indexed = index.refresh(session, rebuild=True)
    if indexed.snapshot_id is None:
        raise InvalidOptionError(
            f"{table.location}: branch '{branch}' has no snapshot, so there is nothing to index"
        )
    path = index.files.store(indexed.state)
    name, value = rebuilt_property(branch, indexed.snapshot_id, path, key.key_ids, key.sequence_ids)
    UpdateProperties(table).set(name, value).commit()
    return indexed.state
