"""The progress of a running query: counts from the sink's receipts, which come on Spark's callback thread."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field

from streamlake import clock
from streamlake.commit.receipt import CommitReceipt, Outcome


@dataclass(frozen=True)
class ProgressState:
    """Counts since the start.

    `rows` and `bytes` are what this run committed. `checkpoints` have ended; `replayed` of them were in the
    table already. `seconds` run up to the last receipt.
    """

    rows: int = 0
    bytes: int = 0
    checkpoints: int = 0
    replayed: int = 0
    snapshots: int = 0
    seconds: float = 0.0
    last_snapshot_id: int | None = None

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

    def begin(self) -> None:
        """Count the seconds from now on."""
        self._started = clock.monotonic()

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
            )

    def take(self) -> list[CommitReceipt]:
        """The receipts since the last call, in order."""
        with self._lock:
            taken, self._new = self._new, []
        return taken
