"""Which staged checkpoints a restarted query commits as they are."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from streamlake.checkpoint.committable import Committable
from streamlake.checkpoint.identity import CheckpointIdentity
from streamlake.commit.receipt import CommitReceipt, Outcome
from streamlake.errors import IndexDamagedError
from streamlake.pipeline.runs.micro_batch import commit_staged, run_micro_batch


class Run:
    """A run of which only the table's last checkpoint and the staged Committables matter."""

    def __init__(self, held: int | None, *staged: CheckpointIdentity) -> None:
        self.held = held
        self.staged = [Committable(identity, "uuid", "main", "append", (), 0, 0, 0) for identity in staged]
        self.committer = self.outage_retry = self
        self.queue = self.rejects = None
        self.calls: list[tuple[str, int]] = []

    def through(self, attempt: Callable[[], Any]) -> Any:
        return attempt()

    def require_predecessor(self, committable: Committable, marker: Any) -> None:
        pass

    def require_fit(self, committable: Committable) -> None:
        pass

    def end_recovery(self, last: CheckpointIdentity | None) -> None:
        self.recovered = True

    def require_own(self, identity: CheckpointIdentity) -> None:
        pass

    def forget_superseded(self, identity: CheckpointIdentity) -> None:
        pass

    def pending(self) -> list[Committable]:
        return self.staged

    def marker(self, identity: CheckpointIdentity) -> Any:
        return None if self.held is None else replace(at(self.held))

    def receipt_if_committed(self, identity: CheckpointIdentity) -> CommitReceipt | None:
        return None

    def commit(
        self, committable: Committable, results: Any = None, outcome: Outcome = Outcome.COMMITTED
    ) -> Any:
        self.held = committable.identity.checkpoint_id
        self.calls.append((outcome.value, self.held))
        return CommitReceipt("job", self.held, outcome, None)

    def write(self, frame: Any, identity: CheckpointIdentity) -> list[Any]:
        self.calls.append(("written", identity.checkpoint_id))
        return []

    def stage(self, identity: CheckpointIdentity, results: Any) -> Committable | None:
        return Committable(identity, "uuid", "main", "append", (), 0, 0, 0)

    def note_commit(self, identity: CheckpointIdentity) -> None:
        pass

    def forget_before(self, identity: CheckpointIdentity) -> None:
        pass


def at(number: int, start: str | None = None, end: str | None = None) -> CheckpointIdentity:
    return CheckpointIdentity("p", "job", number, (start or f"{number}",), (end or f"{number + 1}",))


@pytest.mark.parametrize(
    ("held", "staged", "expected"),
    [
        (4, [at(5)], [("recovered", 5)]),
        (3, [at(4), at(5)], [("recovered", 4), ("recovered", 5)]),
        (4, [at(4), at(5)], [("recovered", 5)]),
        (5, [at(5)], [("written", 5), ("committed", 5)]),
        (4, [at(6)], [("written", 5), ("committed", 5)]),
        (4, [at(5, end="elsewhere")], [("written", 5), ("committed", 5)]),
        # A copy of the directory staged it, and went on differently from here on.
        (3, [at(4, end="elsewhere")], [("written", 5), ("committed", 5)]),
        # Rolled back, and read again in other portions: it ends where the old one ended, but began later.
        (4, [at(5, start="5b")], [("written", 5), ("committed", 5)]),
        (None, [], [("written", 5), ("committed", 5)]),
    ],
)
def test_what_is_due(held: int | None, staged: list[CheckpointIdentity], expected: list[Any]) -> None:
    run: Any = Run(held, *staged)
    run_micro_batch(run, None, at(5))  # type: ignore[arg-type]
    assert run.calls == expected


@pytest.mark.parametrize(("staged", "written"), [(at(5), True), (at(4), False)])
def test_a_checkpoint_whose_index_is_lost_is_written_again(
    staged: CheckpointIdentity, written: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As long as Spark still has its rows."""
    run: Any = Run(3, staged)

    def lost(committable: Committable, results: Any = None, outcome: Outcome = Outcome.COMMITTED) -> Any:
        if outcome == Outcome.RECOVERED:
            raise IndexDamagedError("its runs are gone")
        return CommitReceipt("job", committable.identity.checkpoint_id, outcome, None)

    monkeypatch.setattr(run, "commit", lost)
    if not written:
        with pytest.raises(IndexDamagedError):
            run_micro_batch(run, None, at(5))  # type: ignore[arg-type]
        return
    run_micro_batch(run, None, at(5))  # type: ignore[arg-type]
    assert run.calls == [("written", 5)]


def test_while_a_checkpoint_is_waited_for_those_before_it_are_committed() -> None:
    run = Run(3, at(3), at(4), at(5), at(6))
    commit_staged(run, at(6))  # type: ignore[arg-type]
    assert run.calls == [("recovered", 4), ("recovered", 5)]
    assert not getattr(run, "recovered", False), "the rest is dealt with when there are records"
