"""A database's history through its connector's messages into a table: values left out, moved keys, truncates.

Partitions keep their order, and nothing else does: inside a checkpoint they come in any order, and one may be checkpoints
behind another, but for moved keys, whose halves are told together here.
"""

from __future__ import annotations

import os
import random
import tempfile
from pathlib import Path
from unittest.mock import patch

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from streamlake import create_table, load_table
from streamlake.decode.cdc.change_rows import ChangeRows
from streamlake.records import ROW_ORDER, ROW_SEQUENCE
from streamlake.source.kafka_source import KafkaSource
from streamlake.tasks.key_buckets import key_buckets
from streamlake.write.upsert import upsert_task
from tests.helpers.invariants import check_table
from tests.helpers.local_upserts import LocalUpserts
from tests.helpers.source_history import SCHEMA, SourceHistory

EXAMPLES = int(os.environ.get("STREAMLAKE_HISTORY_EXAMPLES", "25"))


class Follower:
    """A table that follows a history, a checkpoint at a time."""

    def __init__(
        self, location: str, history: SourceHistory, *, tasks: int, at_once: int, delete_mode: str
    ) -> None:
        self.location = location
        self._history = history
        self._at_once = at_once
        create_table(location, SCHEMA, format_version=3, partition_by=["truncate(1, name)"])
        source = KafkaSource("b:1", "t", format="debezium-json", schema=SCHEMA)
        self._decoder = ChangeRows(source.table_schema, {}, source.format, ["id"], {})
        sequence = [ROW_SEQUENCE] if delete_mode == "position" else []
        self.stream = LocalUpserts(
            location, key=["id"], sequence_by=sequence, tasks=tasks, delete_mode=delete_mode
        )

    def checkpoint(self, parts: list[list[tuple[int, int, dict[str, object]]]]) -> None:
        """The messages of some ranges of partitions, in this order."""
        stream, order = self.stream, 0
        identity = stream._identity
        stream.checkpoint_id += 1
        stream.run.table.refresh()
        batches: list[pa.RecordBatch] = []
        for messages in parts:
            decoded = self._decoder.decode(self._history.raw(messages))
            rows = decoded.rows
            places = pa.array(range(order, order + rows.num_rows), pa.int64())
            batches.append(rows.append_column(ROW_ORDER, places))
            order += rows.num_rows
            truncated = decoded.truncated()
            if truncated is not None:
                batches.append(truncated)

        def tasks(target):  # type: ignore[no-untyped-def]
            results = []
            for bucket in range(target.buckets):
                mine = [self._of_bucket(batch, bucket, target) for batch in batches]
                results.append(upsert_task.write_changes(target, mine, bucket, order + bucket, 0))
            return results

        with patch.object(upsert_task, "_CHUNK_ROWS", self._at_once):
            results = stream.run.resolve(identity, tasks)
        committable = stream.run.stage(identity, results)
        if committable is not None:
            stream.run.commit(committable, results)

    def _of_bucket(self, batch, bucket, target):  # type: ignore[no-untyped-def]
        if ROW_ORDER not in batch.schema.names:
            return batch
        found = key_buckets([batch.column("id")], target.key.codec, target.bucketing)
        return batch.filter(pa.array(found == bucket))

    def check(self) -> None:
        table = load_table(self.location)
        check_table(table.table, files_exist=True)
        found = table.scan().to_arrow().to_pylist()
        assert len({row["id"] for row in found}) == len(found)
        assert {row.pop("id"): row for row in found} == self._history.rows


def follow(seed: int, *, skewed: bool, delete_mode: str = "position") -> None:
    source = random.Random(seed)
    history = SourceHistory(source, partitions=source.choice((1, 2, 3)))
    truncates = delete_mode == "position"
    with tempfile.TemporaryDirectory() as home:
        follower = Follower(
            str(Path(home, "table")),
            history,
            tasks=source.choice((1, 2, 3)),
            at_once=source.choice((1, 3, 1000)),
            delete_mode=delete_mode,
        )
        taken = [0] * history.partitions
        for last in (False, False, False, True):
            history.run(source.randrange(1, 14), moves=not skewed, truncates=truncates)
            parts = []
            for partition in source.sample(range(history.partitions), history.partitions):
                mine = [each for each in history.messages if each[1] == partition]
                until = (
                    source.randrange(taken[partition], len(mine) + 1) if skewed and not last else len(mine)
                )
                parts.append(mine[taken[partition] : until])
                taken[partition] = until
            follower.checkpoint([part for part in parts if part])
            if last or not skewed:
                follower.check()
            if source.random() < 0.3:
                follower.stream.restart()


@settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck), print_blob=False)
@given(st.integers(0, 10**9))
@example(1)
def test_moved_keys(seed: int) -> None:
    follow(seed, skewed=False)


@settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck), print_blob=False)
@given(st.integers(0, 10**9))
@example(1)
def test_partitions_that_are_behind(seed: int) -> None:
    follow(seed, skewed=True)


@pytest.mark.parametrize("seed", range(4))
def test_copy_on_write(seed: int) -> None:
    follow(seed, skewed=False, delete_mode="copy-on-write")
