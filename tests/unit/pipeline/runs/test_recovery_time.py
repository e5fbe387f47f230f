"""What a restart after a crash costs of our own making: staged checkpoints, the marker, metadata with 2,000 snapshots."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from streamlake import clock
from streamlake.catalog.open import open_table
from streamlake.commit.receipt import Outcome
from streamlake.errors import StorageError
from streamlake.spec.metadata.snapshot import SnapshotLogEntry, SnapshotRef
from tests.helpers.faulty_io import Fault, FaultyIO
from tests.helpers.local_stream import LocalStream, Record

SOURCE: list[Record] = [(row, "v") for row in range(6)]


def add_snapshots(location: str, count: int) -> None:
    """Other writers have committed so often since, and added nothing."""
    table = open_table(location)
    base = table.metadata
    last = base.snapshots[-1]
    summary = {key: value for key, value in last.summary.items() if not key.startswith("streamlake.")}
    added = []
    for _ in range(count):
        last = replace(
            last,
            snapshot_id=last.snapshot_id + 1,
            parent_snapshot_id=last.snapshot_id,
            sequence_number=last.sequence_number + 1,
            summary=summary,
        )
        added.append(last)
    table.operations.commit(
        base,
        replace(
            base,
            snapshots=(*base.snapshots, *added),
            snapshot_log=(
                *base.snapshot_log,
                *(SnapshotLogEntry(s.timestamp_ms, s.snapshot_id) for s in added),
            ),
            refs={"main": SnapshotRef(last.snapshot_id, "branch")},
            current_snapshot_id=last.snapshot_id,
            last_sequence_number=last.sequence_number,
        ),
    )


@pytest.mark.parametrize("mode", ["append", "upsert"])
def test_a_restart_after_a_crash_does_not_cost_what_the_history_costs(mode: str, tmp_path: Path) -> None:
    took = {}
    for snapshots in (20, 2_000):
        home = tmp_path / f"{mode}-{snapshots}"
        LocalStream(home, SOURCE, mode=mode).start(1)
        add_snapshots(str(home / "table"), snapshots)
        io = FaultyIO([Fault("create_exclusive", "*.metadata.json", 0)])
        with pytest.raises(StorageError):
            LocalStream(home, SOURCE, mode=mode, io=io).start()
        started = clock.monotonic()
        query = LocalStream(home, SOURCE, mode=mode).start(1)
        took[snapshots] = clock.monotonic() - started
        assert query.receipts[0].outcome == Outcome.RECOVERED
        assert len(open_table(query.location).snapshots) == snapshots + 2
    assert took[2_000] - took[20] < 1.5, f"seconds from start to first commit: {took}"
