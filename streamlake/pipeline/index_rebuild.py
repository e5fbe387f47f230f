"""The key index of a branch, built anew from the table and named in a table property for the next run of the stream.

Place in the flow: a command between runs; a stream that is running takes the new index up with its next checkpoint.
Invariant: the index is of the branch's head as the property says, whatever is committed meanwhile.
"""

from __future__ import annotations

from pyspark.sql import SparkSession

from streamlake.errors import InvalidOptionError
from streamlake.index.bucketing import Bucketing
from streamlake.index.state import IndexState
from streamlake.pipeline.index_states import rebuilt_property
from streamlake.pipeline.table_index import TableIndex
from streamlake.table.table import Table
from streamlake.table.update_properties import UpdateProperties
from streamlake.write.upsert_key import UpsertKey


def rebuild_index(
    table: Table, branch: str, key: UpsertKey, bucketing: Bucketing, session: SparkSession | None
) -> IndexState:
    """Build, store and name the index; by Spark where a session is given and rows are many. Raises
    InvalidOptionError when the branch has no snapshot."""
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
