"""The check that a stream's key stays the same: rows of one key are not matched with entries of another.

Invariant: nothing that was found by other key columns is ever used; where going on would mix them, the job
stops and names both.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

from streamlake.checkpoint.committable import Committable
from streamlake.commit.marker import committed_key
from streamlake.errors import IndexDamagedError, InvalidOptionError, MissingFileError
from streamlake.pipeline.key_index.table_index import TableIndex
from streamlake.table.table import Table
from streamlake.write.upsert.upsert_key import UpsertKey


def require_same_key(table: Table, branch: str, pipeline: str, key: UpsertKey) -> None:
    """Raises InvalidOptionError where the last commit of a pipeline replaced rows by other key columns; their
    order does not matter.
    """
    before = committed_key(table.metadata, branch, pipeline)
    if before and set(before) != set(key.key_ids):
        raise InvalidOptionError(
            f"pipeline '{pipeline}' has replaced rows of {table.location} by the key {_named(table, before)} "
            f"so far, and is now started with the key {_named(table, key.key_ids)}: rows that are one by the "
            "one key and two by the other would be lost or doubled without a word. Either go on with the old "
            "key, or start under another pipeline name, to tell rows apart by the new key from here on"
        )


def require_same_index(table: Table, index: TableIndex, key: UpsertKey, committable: Committable) -> None:
    """Raises IndexDamagedError where the own index runs of a staged checkpoint are not over the columns of
    `key`, so that its positions cannot be looked up again.
    """
    fits = (committable.key_ids, committable.sequence_ids) == (key.key_ids, key.sequence_ids)
    if fits and committable.index_state is not None:
        with contextlib.suppress(IndexDamagedError, MissingFileError):
            fits = index.loaded(committable.index_state) is not None
    if not fits:
        raise IndexDamagedError(
            f"{committable.identity} was staged for {table.location} by a driver that is gone, with the key "
            f"{_columns(table, committable.key_ids, committable.sequence_ids)}, and other writers have "
            f"committed since; with the key {_columns(table, key.key_ids, key.sequence_ids)}, or with other "
            "types of these columns, it cannot be brought to the table's present state. Start the stream "
            "once more as it was, so that it is committed"
        )


def _columns(table: Table, key_ids: Sequence[int], sequence_ids: Sequence[int]) -> str:
    ordered = f", ordered by {_named(table, sequence_ids)}" if sequence_ids else ""
    return _named(table, key_ids) + ordered


def _named(table: Table, field_ids: Sequence[int]) -> str:
    schema = table.schema
    return ", ".join(schema.name_of(field_id) or f"(field id {field_id})" for field_id in field_ids)
