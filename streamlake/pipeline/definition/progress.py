"""The progress of a running query: counts from the sink's receipts, which come on Spark's callback thread."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field

from streamlake import clock
from streamlake.commit.receipt import CommitReceipt, Outcome
from streamlake.source.offsets import SourceOffsets


@dataclass(frozen=True)
class ProgressState:
    """Counts since the start.

    `rows` and `bytes` are what this run committed. `checkpoints` have ended; `replayed` of them were in the
    table already. `seconds` run up to the last receipt. `offsets` is how many were read up to there, and how
    many this run reads in all (None: it has no known end).
    """

    rows: int = 0
    bytes: int = 0
    checkpoints: int = 0
    replayed: int = 0
    snapshots: int = 0
    seconds: float = 0.0
    last_snapshot_id: int | None = None
    offsets: tuple[int, int] | None = None

    @property
    def seconds_left(self) -> float | None:
        """How long the rest takes at the pace so far; None where that is not known."""
        read, every = self.offsets or (0, 0)
        return self.seconds * (every - read) / read if read and self.seconds > 0 else None

    @property
    def rows_per_second(self) -> float:
        """Rows per second since the start; 0.0 before the first receipt."""
        return self.rows / self.seconds if self.seconds > 0 else 0.0


@dataclass
class Progress:
    """Collects receipts: pass `add` to IcebergSink as `on_commit`. Thread-safe."""

    state: ProgressState = field(default_factory=ProgressState)
    _new: list[CommitReceipt] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _started: float = field(default_factory=clock.monotonic)
    _extent: Callable[[], tuple[int, int] | None] = lambda: None

    def begin(self) -> None:
        """Count the seconds from now on."""
        self._started = clock.monotonic()

    def follow(self, extent: Callable[[], tuple[int, int] | None]) -> None:
        """Ask `extent` at each receipt how many offsets were read, of how many."""
        self._extent = extent

    def add(self, receipt: CommitReceipt) -> None:
        """Count a receipt, and keep it for `take`."""
        with self._lock:
            self._new.append(receipt)
            before = self.state
            ours = receipt.outcome in (Outcome.COMMITTED, Outcome.RECOVERED)
            self.state = ProgressState(
                rows=before.rows + (receipt.rows if ours else 0),
                bytes=before.bytes + (receipt.bytes if ours else 0),
                checkpoints=before.checkpoints + 1,
                replayed=before.replayed + (receipt.outcome is Outcome.SKIPPED),
                snapshots=before.snapshots + (ours and receipt.snapshot_id is not None),
                seconds=clock.monotonic() - self._started,
                last_snapshot_id=receipt.snapshot_id or before.last_snapshot_id,
                offsets=self._extent(),
            )

    def take(self) -> list[CommitReceipt]:
        """The receipts since the last call, in order."""
        with self._lock:
            taken, self._new = self._new, []
        return taken


def offsets_read(
    first: SourceOffsets | None, now: SourceOffsets | None, target: SourceOffsets | None
) -> tuple[int, int] | None:
    """How many offsets lie between `first` and `now`, and between `first` and `target`.

    None without a target. A partition that `first` does not have begins where `target` says, else at 0.
    """
    if target is None:
        return None
    read = every = 0
    for part, end in target.positions.items():
        begin = end if first is None else first.positions.get(part, target.first.get(part, 0))
        here = begin if now is None else now.positions.get(part, begin)
        every += max(0, end - begin)
        read += max(0, min(here, end) - begin)
    return read, every
