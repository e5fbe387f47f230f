"""Random histories of tables under a stream with random limits and restarts: every row once, replays the same."""

from __future__ import annotations

import tempfile
from typing import Any

from hypothesis import HealthCheck, Phase, given, note, settings
from hypothesis import strategies as st

from streamlake.errors import LineageError
from streamlake.tables import LoadedTable, create_table
from tests.helpers.row_deltas import row_delta
from tests.unit.pipeline.iceberg.table_streams import (
    Stream,
    add,
    compact,
    enumerator_of,
    expire,
    overwrite,
    set_branch,
)
from tests.unit.read.written_tables import rows_of

ROW_GROUPS = {"write.parquet.row-group-size-bytes": "1"}


class World:
    """A table, the ids that an exact reader would have read, and a stream."""

    def __init__(self, folder: str, draw: Any) -> None:
        self.draw = draw
        self.table: LoadedTable = create_table(
            f"{folder}/t",
            "id long, category string",
            partition_by=["category"],
            format_version=draw(st.sampled_from([2, 3])),
            properties={"commit.manifest.min-count-to-merge": draw(st.sampled_from(["2", "100"]))},
        )
        self.numbers = 0
        self.appended: dict[int, list[int]] = {}
        self.lost: set[int] = set()
        for _ in range(draw(st.integers(0, 3))):
            self.change()
        self.expected = sorted(self.table.scan().to_arrow()["id"].to_pylist())
        self.stream = Stream(self.table, on_delete="skip", **self.limits())
        # The start is resolved with the first step.
        self.step()

    def limits(self) -> dict[str, Any]:
        limit = st.none() | st.integers(1, 4)
        names = ("max_files_per_trigger", "max_rows_per_trigger", "max_planning_snapshot_count")
        drawn = {name: self.draw(limit) for name in names}
        drawn["split_size"] = self.draw(st.none() | st.sampled_from([1, 300]))
        drawn["watermark_column"] = self.draw(st.sampled_from([None, None, "id"]))
        return {name: value for name, value in drawn.items() if value is not None}

    def change(self) -> None:
        """One commit of a random kind."""
        kind = self.draw(st.sampled_from(["append", "append", "append", "overwrite", "delete", "compact"]))
        note(kind)
        head = self.table.current_snapshot
        if kind == "append" or head is None:
            ids = self._new_ids(self.draw(st.integers(1, 4)))
            properties = ROW_GROUPS if self.draw(st.booleans()) else {}
            self.appended[add(self.table, *ids, **properties)] = ids
        elif kind == "overwrite":
            overwrite(self.table, "category = 'a'", *self._new_ids(1))
        elif kind == "delete":
            live = self.table.scan().to_arrow()["id"].to_pylist()
            gone = self.draw(st.sets(st.sampled_from(live), max_size=3)) if live else set()
            rows = [{"id": number, "category": "ab"[number % 2]} for number in self._new_ids(1)]
            row_delta(self.table.table, gone, rows_of(self.table, rows) if gone else None).commit()
            self.table.refresh()
        elif self.table.scan().count():
            compact(self.table)

    def step(self) -> None:
        before = len(self.stream.log)
        self.stream.step()
        if len(self.stream.log) > before:
            note(self.stream.log[-1])

    def replay(self) -> None:
        """The last micro-batch again, by a driver that was just started: the same rows in the same splits."""
        last = len(self.stream.log) - 1
        fresh = enumerator_of(self.table, **self.stream.arguments)
        start = None if last == 0 else self.stream.offset(last - 1)
        end = self.stream.offset(last)
        assert end is not None
        assert fresh.splits(start, end) == self.stream.enumerator.splits(start, end)
        assert self.stream.read(last, fresh) == self.stream.batches[last]

    def rollback_of_unread(self) -> None:
        """Back to where the stream is, if it is at the end of a snapshot of the branch."""
        position = self.stream.offset(-1).position  # type: ignore[union-attr]
        if position.within is None and position.snapshot_id is not None:
            for snapshot in list(self.table.metadata.ancestors(self.table.current_snapshot.snapshot_id)):
                if snapshot.snapshot_id == position.snapshot_id:
                    break
                self.appended.pop(snapshot.snapshot_id, None)
            set_branch(self.table, position.snapshot_id)

    def expire_read(self) -> None:
        """Expire what the stream has read."""
        position = self.stream.offset(-1).position  # type: ignore[union-attr]
        past = list(self.table.metadata.ancestors(position.snapshot_id))[1:]
        expire(self.table, *(each.snapshot_id for each in past))

    def _new_ids(self, count: int) -> list[int]:
        self.numbers += count
        return list(range(self.numbers - count, self.numbers))


@settings(
    max_examples=60,
    deadline=None,
    phases=[Phase.explicit, Phase.generate, Phase.shrink],
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(st.data())
def test_every_row_once(data: Any) -> None:
    with tempfile.TemporaryDirectory() as folder:
        world = World(folder, data.draw)
        scanned = set(world.appended)
        for _ in range(data.draw(st.integers(0, 8))):
            action = data.draw(
                st.sampled_from(
                    ["change", "change", "step", "step", "restart", "limits", "replay", "rollback", "expire"]
                )
            )
            note(action)
            if action == "change":
                world.change()
            elif action == "step":
                world.step()
            elif action == "restart":
                world.stream.restart()
            elif action == "limits":
                for name in (
                    "max_files_per_trigger",
                    "max_rows_per_trigger",
                    "split_size",
                    "watermark_column",
                ):
                    world.stream.arguments.pop(name, None)
                world.stream.restart(**world.limits())
            elif action == "replay":
                world.replay()
            elif action == "rollback":
                world.rollback_of_unread()
            else:
                world.expire_read()
        world.stream.run()
        later = [
            number for snapshot, ids in world.appended.items() if snapshot not in scanned for number in ids
        ]
        assert world.stream.all() == sorted([*world.expected, *later])


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.data())
def test_what_is_lost_is_an_error_or_counted(data: Any) -> None:
    """Expiry of anything: what the stream delivers is what there was, or it stops; it never leaves rows out silently."""
    with tempfile.TemporaryDirectory() as folder:
        world = World(folder, data.draw)
        scanned = set(world.appended)
        for _ in range(data.draw(st.integers(1, 4))):
            world.change()
        gone = data.draw(st.sets(st.sampled_from([each.snapshot_id for each in world.table.snapshots])))
        expire(world.table, *(gone - {world.table.current_snapshot.snapshot_id}))
        world.stream.restart()
        later = [
            number for snapshot, ids in world.appended.items() if snapshot not in scanned for number in ids
        ]
        try:
            world.stream.run()
        except LineageError:
            world.stream.restart(fail_on_data_loss=False)
            world.stream.run()
            assert any((world.stream.offset(at) or _none()).lost for at in range(len(world.stream.log)))
            assert set(world.stream.all()) <= {*world.expected, *later}
            assert len(set(world.stream.all())) == len(world.stream.all())
        else:
            assert world.stream.all() == sorted([*world.expected, *later])


def _none() -> Any:
    raise AssertionError
