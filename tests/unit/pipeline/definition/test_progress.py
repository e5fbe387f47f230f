"""Progress is counted from receipts: replays bring no rows, empty checkpoints no snapshot."""

from __future__ import annotations

from streamlake.commit.receipt import CommitReceipt, Outcome
from streamlake.pipeline.definition.progress import Progress, ProgressState, offsets_read
from streamlake.source.offsets import SourceOffsets


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


def test_a_run_with_an_end_knows_how_much_is_read_and_how_long_the_rest_takes() -> None:
    first = SourceOffsets({("t", 0): 10, ("t", 1): 0})
    target = SourceOffsets({("t", 0): 110, ("t", 1): 50, ("t", 2): 30}, {("t", 2): 20})
    assert offsets_read(first, None, target) == (0, 160)
    assert offsets_read(first, SourceOffsets({("t", 0): 60, ("t", 1): 500, ("t", 2): 25}), target) == (
        105,
        160,
    )
    assert offsets_read(first, first, None) is None
    progress = Progress()
    progress.begin()
    progress.follow(lambda: (40, 160))
    progress.add(CommitReceipt("job", 0, Outcome.COMMITTED, 1, rows=40))
    state = progress.state
    assert state.offsets == (40, 160)
    assert state.seconds_left is not None
    assert abs(state.seconds_left - 3 * state.seconds) < 1e-6
    assert ProgressState().seconds_left is None
