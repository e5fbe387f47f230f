"""Progress is counted from receipts: replays bring no rows, empty checkpoints no snapshot."""

from __future__ import annotations

from streamlake.commit.receipt import CommitReceipt, Outcome
from streamlake.pipeline.definition.progress import Progress, ProgressState


def test_counts() -> None:
    progress = Progress()
    progress.begin()
    progress.add(CommitReceipt("job", 0, Outcome.SKIPPED, 11))
    progress.add(CommitReceipt("job", 1, Outcome.COMMITTED, 12, rows=100, bytes=5))
    progress.add(CommitReceipt("job", 2, Outcome.RECOVERED, 13, rows=20, bytes=1))
    progress.add(CommitReceipt("job", 3, Outcome.EMPTY, None))
    state = progress.state
    assert (state.rows, state.bytes, state.checkpoints) == (120, 6, 4)
    assert (state.replayed, state.snapshots, state.last_snapshot_id) == (1, 2, 13)
    assert state.seconds > 0
    assert state.rows_per_second > 120


def test_receipts_are_taken_once() -> None:
    progress = Progress()
    receipts = [CommitReceipt("job", at, Outcome.EMPTY, None) for at in range(3)]
    for receipt in receipts:
        progress.add(receipt)
    assert progress.take() == receipts
    assert progress.take() == []


def test_no_time_no_rate() -> None:
    assert ProgressState(rows=5).rows_per_second == 0.0
