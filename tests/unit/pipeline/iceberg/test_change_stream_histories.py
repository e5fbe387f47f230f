"""Random histories read as a stream of changes, in random micro-batches, with restarts and replays.

The changes, applied in order to an empty table, give the table at the end; what is read of each snapshot is what
`scan_changes` says of it.
"""

from __future__ import annotations

import os
import tempfile
from collections import Counter, defaultdict
from typing import Any
from unittest import mock

from hypothesis import HealthCheck, Phase, given, note, settings
from hypothesis import strategies as st

from streamlake.pipeline.iceberg import planned_changes
from tests.helpers.change_history import ChangeHistory
from tests.helpers.delete_history import TYPES
from tests.unit.pipeline.iceberg.table_streams import ChangeStream, enumerator_of, values_of

EXAMPLES = int(os.environ.get("STREAMLAKE_CHANGES_EXAMPLES", "15"))


def change(row: dict[str, Any]) -> str:
    """A change without its number in the stream, which a scan of one snapshot cannot know."""
    return repr({name: value for name, value in row.items() if name != "_ordinal"})


class World:
    """A table with a random history, and a stream of its changes."""

    def __init__(self, folder: str, draw: Any) -> None:
        self.draw = draw
        types = draw(st.lists(st.sampled_from(TYPES), min_size=1, max_size=2))
        self.history = ChangeHistory(f"{folder}/t", draw, draw(st.sampled_from([2, 3])), types)
        for _ in range(draw(st.integers(0, 3))):
            if not draw(st.integers(0, 3)):
                self.history.evolve()
            self.history.commit()
        self.keyed = draw(st.booleans())
        self.filter = draw(st.sampled_from([None, None, "category = 'a'"]))
        self.is_net = not draw(st.integers(0, 3))
        self.scanned = len(self.history.states)
        self.stream = self.started()
        # The start is resolved with the first step.
        self.step()

    def started(self) -> ChangeStream:
        more: dict[str, Any] = {"filter": self.filter} if self.filter else {}
        if self.keyed:
            more["identifier_columns"] = "n"
        return ChangeStream(
            self.history.table,
            net_changes=self.is_net,
            **self.limits(),
            **more,
        )

    def limits(self) -> dict[str, Any]:
        limit = st.none() | st.integers(1, 4)
        names = ("max_files_per_trigger", "max_rows_per_trigger", "max_planning_snapshot_count")
        drawn = {name: self.draw(limit) for name in names}
        drawn["split_size"] = self.draw(st.none() | st.sampled_from([1, 3000]))
        return {name: value for name, value in drawn.items() if value is not None}

    def step(self) -> None:
        before = len(self.stream.log)
        self.stream.step()
        if len(self.stream.log) > before:
            note(self.stream.log[-1])

    def replay(self) -> None:
        """The last micro-batch again, by a driver that was just started: the same rows in the same splits."""
        last = len(self.stream.log) - 1
        fresh = enumerator_of(self.history.table, **self.stream.arguments)
        start, end = (None if last == 0 else self.stream.offset(last - 1)), self.stream.offset(last)
        assert end is not None
        # Groups of equality deletes are compared by identity, and NaN differs from itself.
        assert repr(fresh.splits(start, end)) == repr(self.stream.enumerator.splits(start, end))
        assert repr(self.stream.read(last, fresh)) == repr(self.stream.batches[last])


@settings(
    max_examples=EXAMPLES,
    deadline=None,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(st.data())
def test_changes_applied_in_order_give_the_table(data: Any) -> None:
    # So few rows are all in one part, or nearly each in its own.
    in_memory = mock.patch.object(
        planned_changes, "ROWS_PAIRED_AT_ONCE", data.draw(st.sampled_from([3, 1 << 20]))
    )
    with in_memory, tempfile.TemporaryDirectory() as folder:
        world = World(folder, data.draw)
        for _ in range(data.draw(st.integers(0, 7))):
            actions = ["change", "change", "change", "step", "step", "restart", "replay"]
            action = data.draw(st.sampled_from(actions))
            note(action)
            if action == "change":
                world.history.commit()
            elif action == "step":
                world.step()
            elif action == "restart":
                for name in ("max_files_per_trigger", "max_rows_per_trigger", "split_size"):
                    world.stream.arguments.pop(name, None)
                world.stream.restart(**world.limits())
            else:
                world.replay()
        world.stream.run()
        check(world)


def check(world: World) -> None:
    table, found = world.history.table, world.stream.found()
    live = table.scan(world.filter).to_arrow().to_pylist() if world.history.states else []
    assert world.stream.applied() == Counter(map(values_of, live))
    ordinals = [row["_ordinal"] for row in found]
    if world.is_net:
        return
    assert ordinals == sorted(ordinals)
    by_snapshot: defaultdict[int, list[str]] = defaultdict(list)
    for row in found:
        by_snapshot[row["_snapshot_id"]].append(change(row))
    states = world.history.states
    for before, after in zip([None, *states], states, strict=False):
        if states.index(after) < world.scanned:
            continue
        between = (None if before is None else before.snapshot_id, after.snapshot_id)
        scan = table.scan_changes(*between, world.filter, keys=["n"] if world.keyed else [])
        expected = sorted(change(row) for row in scan.to_arrow().to_pylist())
        assert sorted(by_snapshot[after.snapshot_id]) == expected
