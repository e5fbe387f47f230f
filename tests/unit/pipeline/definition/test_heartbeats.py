"""A driver's heartbeats: what they say at each end, and that a storage that fails or hangs does not matter."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from streamlake.checkpoint.heartbeat import (
    HEARTBEAT_PATH,
    DriverState,
    Heartbeat,
    TableUpkeep,
    heartbeat_from_text,
    heartbeat_to_bytes,
)
from streamlake.checkpoint.new_directory import require_new
from streamlake.commit.receipt import CommitReceipt, Outcome
from streamlake.errors import InvalidOptionError, LineageError, StorageError
from streamlake.pipeline.definition import heartbeats as module
from streamlake.pipeline.definition.heartbeats import Heartbeats
from streamlake.storage.local import LocalFileIO
from tests.helpers.processes import wait_until


def beats(home: Path, seconds: float = 60.0) -> Heartbeats:
    return Heartbeats(LocalFileIO, str(home), seconds)


def read(home: Path) -> Heartbeat | None:
    path = home / HEARTBEAT_PATH
    return heartbeat_from_text(path.read_text()) if path.exists() else None


def found(home: Path) -> Heartbeat:
    beat = read(home)
    assert beat is not None
    return beat


def test_a_run_says_that_it_runs_and_how_it_ended(tmp_path: Path) -> None:
    with beats(tmp_path, 0.01) as running:
        wait_until(lambda: read(tmp_path) is not None, 10, "a heartbeat")
        assert (found(tmp_path).state, found(tmp_path).pid) == (DriverState.RUNNING, os.getpid())
        running.finished(CommitReceipt("job", 7, Outcome.COMMITTED, 1))
        running.waits(True)
        wait_until(lambda: found(tmp_path).checkpoint_id == 7, 10, "a heartbeat")
    assert (found(tmp_path).state, found(tmp_path).is_waiting) == (DriverState.ENDED, True)
    with beats(tmp_path) as running:
        running.end(DriverState.STOPPED)
    assert (found(tmp_path).state, found(tmp_path).checkpoint_id) == (DriverState.STOPPED, None)


def test_an_error_is_kept_by_the_runs_that_follow(tmp_path: Path) -> None:
    with pytest.raises(LineageError), beats(tmp_path):
        raise LineageError("the table was\nput back")
    failed = found(tmp_path)
    assert failed.state is DriverState.FAILED
    assert failed.error is not None
    assert failed.error.text == "LineageError: the table was put back"
    with beats(tmp_path):
        pass
    assert (found(tmp_path).state, found(tmp_path).error) == (DriverState.ENDED, failed.error)


def test_a_replaced_driver_leaves_the_last_word_to_its_successor(tmp_path: Path) -> None:
    older = beats(tmp_path)
    with older:
        wait_until(lambda: read(tmp_path) is not None, 10, "a heartbeat")
        first = found(tmp_path)
        later = Heartbeat("later", DriverState.RUNNING, "there", 1, first.started_ms + 1, first.at_ms)
        (tmp_path / HEARTBEAT_PATH).write_bytes(heartbeat_to_bytes(later))
    assert found(tmp_path) == later


def test_heartbeats_are_not_synced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[int] = []
    monkeypatch.setattr(os, "fsync", synced.append)
    with beats(tmp_path, 0.01):
        time.sleep(0.05)
    assert found(tmp_path).state is DriverState.ENDED
    assert synced == []


def test_a_storage_that_fails_is_a_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    def refuse() -> Any:
        raise StorageError("no credentials")

    with Heartbeats(refuse, str(tmp_path)):
        pass
    (tmp_path / "file").write_text("")
    with beats(tmp_path / "file", 0.01):
        time.sleep(0.05)
    assert [record.levelname for record in caplog.records] == ["WARNING", "WARNING"]
    assert "no credentials" in caplog.text


def test_a_storage_that_hangs_delays_the_end_for_a_moment_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_LAST_WAIT_SECONDS", 0.05)
    release = threading.Event()

    class Hanging(LocalFileIO):
        def with_fsync(self, on: bool) -> Hanging:
            return self

        def write_bytes(self, path: str, data: bytes) -> None:
            release.wait(30)

    before = time.monotonic()
    with Heartbeats(Hanging, str(tmp_path)):
        pass
    assert time.monotonic() - before < 10
    release.set()


@pytest.mark.parametrize(
    "text", ["", "{", "[]", '{"state": "running"}', '{"error": null, "state": "flying"}']
)
def test_a_damaged_heartbeat_is_none(text: str) -> None:
    assert heartbeat_from_text(text) is None


def test_a_directory_with_nothing_but_a_heartbeat_is_new(tmp_path: Path) -> None:
    with beats(tmp_path):
        pass
    require_new(str(tmp_path), LocalFileIO())
    (tmp_path / "metadata").write_text("{}")
    with pytest.raises(InvalidOptionError, match="is not new"):
        require_new(str(tmp_path), LocalFileIO())


def test_what_the_maintenance_does_is_told(tmp_path: Path) -> None:
    states = [
        TableUpkeep("quiet"),
        TableUpkeep("old", 1, ("compact",), "data files 9 to 1"),
        TableUpkeep("due", due=("expire",), waits_for="another 5 s"),
        TableUpkeep("new", 2, ("expire",), "snapshots 9 to 1"),
        TableUpkeep("failed", 1, error="no disk"),
        *(TableUpkeep(f"t{number}", due=("expire",)) for number in range(40)),
    ]
    with beats(tmp_path) as running:
        running.maintained = lambda: tuple(states)
    told = found(tmp_path).maintenance
    assert [each.table for each in told][:4] == ["failed", "new", "old", "due"]
    assert len(told) == 20
    assert told[2] == states[1]


def test_a_state_of_the_maintenance_that_cannot_be_had_does_not_matter(tmp_path: Path) -> None:
    with beats(tmp_path, 0.01) as running:
        running.maintained = lambda: 1 / 0  # type: ignore[assignment, return-value]
        wait_until(lambda: running._has_complained, 10, "a complaint")


def test_a_heartbeat_of_an_earlier_version_has_no_maintenance() -> None:
    beat = Heartbeat("run", DriverState.RUNNING, "host", 1, 2, 3)
    text = heartbeat_to_bytes(beat).decode().replace(', "maintenance": []', "")
    assert "maintenance" not in text
    assert heartbeat_from_text(text) == beat
