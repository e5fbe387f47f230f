"""How often the tables of a micro-batch are written again, and why: the turns end."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from streamlake.errors import IndexDamagedError, MisplacedKeyError, StreamlakeError
from streamlake.pipeline.runs import table_writes
from streamlake.pipeline.runs.stages import Aim, Written
from streamlake.pipeline.runs.upsert_run import UpsertRun


class _Run(UpsertRun):
    """A table whose rows are misplaced until it is shuffled, which its index remembers, and whose index was damaged."""

    def __init__(self) -> None:
        self.is_shuffled = False
        self.rebuilds = 0
        self.turns = 0
        self.table = SimpleNamespace(location="/t")  # type: ignore[assignment]
        self.filtered = SimpleNamespace(see=lambda *_: 0)  # type: ignore[assignment]

    @property
    def rejects(self) -> None:  # type: ignore[override]
        return None

    def discard(self, paths: Any) -> None:
        assert not list(paths)

    def shuffle_instead(self, error: MisplacedKeyError, aim: Any) -> None:
        self.is_shuffled = True


@pytest.mark.parametrize("first", ["damaged", "misplaced"])
def test_a_damaged_index_is_rebuilt_once_although_its_rows_are_misplaced(
    first: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = _Run()
    is_damaged = True

    def ready(write: Any, *, rebuild: bool) -> tuple[Any, None]:
        nonlocal is_damaged
        if rebuild:
            run.rebuilds += 1
            run.is_shuffled = is_damaged = False
        return write, None

    def outcome() -> list[StreamlakeError]:
        if is_damaged and (first == "damaged" or run.is_shuffled):
            return [IndexDamagedError("damaged")]
        return [] if run.is_shuffled else [MisplacedKeyError("misplaced")]

    class Job:
        def __init__(self, *_: object, **__: object) -> None:
            self.newest: dict[int, Any] = {}
            self.aims = {0: Aim(None)}  # type: ignore[arg-type]
            self.routed = table_writes.RoutedJob([], [])

        def add_all(self, writes: Any, rebuilds: Any) -> dict[int, StreamlakeError]:
            ready(writes[0], rebuild=rebuilds[0])
            return {}

        def run(self) -> dict[int, Any]:
            run.turns += 1
            assert run.turns < 10
            return {0: ([], outcome())}

    monkeypatch.setattr(table_writes, "_Job", Job)
    source = SimpleNamespace(settings=SimpleNamespace(source_tables=()))
    write = SimpleNamespace(run=run, part=None, identity=None, reader=SimpleNamespace(source=source))
    assert table_writes.write_tables(None, [write]) == [Written()]  # type: ignore[arg-type,list-item]
    assert run.rebuilds == 1
