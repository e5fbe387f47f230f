"""A driver that starts in an outage waits for its end within the table's budget, as it does in the middle of a checkpoint."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from streamlake import IcebergSink
from streamlake.catalog.open import open_table
from streamlake.checkpoint.identity import CheckpointIdentity
from streamlake.checkpoint.table_note import Calls
from streamlake.commit.committer import Committer
from streamlake.errors import LineageError, StorageError
from streamlake.pipeline.runs.sink_run import SinkRun
from streamlake.pipeline.runs.upsert_run import UpsertRun
from streamlake.pipeline.sinks import table_stream
from streamlake.pipeline.spark.interruption import MicroBatchInterruptedError
from streamlake.pipeline.spark.query_identity import QueryRun
from streamlake.table.table import Table
from tests.helpers.faulty_io import FAIL, Fault, FaultyIO
from tests.helpers.local_stream import FileNote, LocalStream, Record
from tests.helpers.processes import wait_until
from tests.helpers.tables import FAST_RETRIES

SOURCE: list[Record] = [(row % 7, f"v{row}") for row in range(12)]


def interrupted_stream(home: Path) -> LocalStream:
    """A stream of upserts that has died with a staged checkpoint, and a table that others have written since."""

    def die(*_: object) -> None:
        raise KeyboardInterrupt

    stream = LocalStream(home, SOURCE, mode="upsert", step=4).start(1)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Committer, "commit", die)
        with pytest.raises(KeyboardInterrupt):
            stream.start(1)
    LocalStream(home, [(99, "foreign")], pipeline="other", directory="other").start()
    return stream


def up_to_the_tasks(stream: LocalStream) -> UpsertRun:
    """Everything that a driver reads before it writes."""
    checkpoint_id = stream.plan()
    assert checkpoint_id is not None
    run = stream._opened(stream.identity(checkpoint_id))
    assert isinstance(run, UpsertRun)
    run.pending()
    run._refreshed()
    return run


@pytest.mark.parametrize("operation", ["read_bytes", "open_input", "exists", "list_prefix"])
def test_a_start_survives_a_fault_at_every_call(operation: str, tmp_path: Path) -> None:
    interrupted_stream(tmp_path)
    files = len(up_to_the_tasks(LocalStream(tmp_path, SOURCE, mode="upsert", step=4))._refreshed().live_files)
    met = 0
    for nth in itertools.count(1):
        io = FaultyIO([Fault(operation, nth=nth, how=FAIL)])
        run = up_to_the_tasks(LocalStream(tmp_path, SOURCE, mode="upsert", step=4, io=io))
        assert len(run._refreshed().live_files) == files
        if sum(called == operation for called, _ in io.calls) < nth:
            break
        met = nth
    assert met >= 1, "it is called"


def test_the_budget_of_a_start_has_an_end(tmp_path: Path) -> None:
    interrupted_stream(tmp_path)
    io = FaultyIO([Fault("list_prefix", nth=0)])
    with pytest.raises(StorageError, match="as it was told to"):
        up_to_the_tasks(LocalStream(tmp_path, SOURCE, mode="upsert", step=4, io=io))
    assert [call[0] for call in io.calls].count("list_prefix") == 5, "commit.retry.num-retries is 4"


class Start:
    """The start of a sink on a table that cannot be opened so many times."""

    def __init__(self, home: Path, monkeypatch: pytest.MonkeyPatch, failures: float, **settings: Any) -> None:
        self.stream = LocalStream(home, SOURCE).start(1)
        self.tried = 0
        sink = IcebergSink(self.stream.location, pipeline="p", **settings)
        self.table = sink.stream(Calls.EVERY)

        def fail_first(*arguments: Any) -> Table:
            self.tried += 1
            if self.tried <= failures:
                raise StorageError("the storage is away")
            return open_table(*arguments)

        monkeypatch.setattr(table_stream, "open_table", fail_first)

    @property
    def identity(self) -> CheckpointIdentity:
        return self.stream.identity(self.stream.plan() or 0)

    def run(self) -> SinkRun:
        directory = self.stream.directory
        note: Any = FileNote(directory, self.stream.location, "main")
        logged: Any = type("Logged", (), {"of": staticmethod(directory.end_offsets)})
        session: Any = None
        return self.table.opened_run(QueryRun("run", None, logged), note, self.identity, None, session)


def test_a_sink_opens_its_table_through_an_outage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    start = Start(tmp_path, monkeypatch, 3, create=True, properties=FAST_RETRIES)
    assert start.run().table.location == start.stream.location
    assert start.tried == 4


def test_a_sink_that_is_stopped_waits_no_longer_for_its_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    long = {"commit.retry.num-retries": "1000", "commit.retry.min-wait-ms": "60000"}
    start = Start(tmp_path, monkeypatch, float("inf"), create=True, properties=long)
    ended: list[BaseException] = []
    thread = threading.Thread(target=_caught(start.run, ended))
    thread.start()
    wait_until(lambda: start.tried > 0, 10, "the first look for the table")
    start.table.runs.interrupt(start.identity.job_id)
    thread.join(10)
    assert [type(error) for error in ended] == [MicroBatchInterruptedError]


def test_a_table_that_was_dropped_is_no_outage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for settings in ({}, {"create": True}):
        start = Start(tmp_path / str(len(settings)), monkeypatch, 0, **settings)
        for path in sorted(Path(start.stream.location).rglob("*"), reverse=True):
            path.rmdir() if path.is_dir() else path.unlink()
        with pytest.raises(LineageError, match="was dropped: there is no table now"):
            start.run()
        assert start.tried == 1
        assert not list(Path(start.stream.location).rglob("*")), "nothing was created in its place"


def _caught(work: Callable[[], object], errors: list[BaseException]) -> Callable[[], None]:
    def run() -> None:
        try:
            work()
        except BaseException as error:
            errors.append(error)

    return run
