"""Entries of Spark's logs that are empty or cut short: told as such, removed by the start or by a command, and no row is lost
or doubled on the way."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from streamlake.catalog.open import open_table
from streamlake.checkpoint.spark_directory import SparkDirectory
from streamlake.checkpoint.torn_entries import is_torn_done, is_torn_plan
from streamlake.cli.main import main
from streamlake.commit.committer import Committer
from streamlake.commit.receipt import Outcome
from streamlake.errors import LineageError
from streamlake.operate.check.check_points import Points, Verdict
from streamlake.operate.check.directory_check import check_lineage, opened_directory
from streamlake.operate.check.sink_check import SinkPlan
from streamlake.pipeline.sinks import bound_directory
from streamlake.pipeline.sinks.bound_directory import directory_at
from tests.helpers import local_stream
from tests.helpers.invariants import check_table
from tests.helpers.local_stream import LocalStream, Record

RECORDS: list[Record] = [(number if number % 5 else max(number - 5, 0), f"v{number}") for number in range(10)]
MORE: list[Record] = [(number, f"v{number}") for number in range(20, 23)]
PLAN = b'v1\n{"batchWatermarkMs":0}\n{"end":6}'
DONE = b'v1\n{"nextBatchWatermarkMs":0}'
PLANS = (b"", b"v", b"v1", b"v1\n", PLAN[:10], PLAN[:-10], PLAN[:-2], bytes(len(PLAN)))
DONES = (b"", b"v", b"v1\n", DONE[:-2], bytes(len(DONE)))


def streamlake(*arguments: str) -> int:
    with pytest.raises(SystemExit) as ended:
        main(list(arguments))
    return int(ended.value.code or 0)


def planned(stream: LocalStream) -> None:
    """Spark has planned checkpoint 2, and no more."""
    stream.start(2)
    stream.plan()


def staged(stream: LocalStream) -> None:
    stream.start(2)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Committer, "commit", _dying)
        with pytest.raises(KeyboardInterrupt):
            stream.start(1)


def swapped(stream: LocalStream) -> None:
    """It is in the table, and not in Spark's commit log."""
    stream.start(3)
    (stream.path / "commits" / "2").unlink()


def done(stream: LocalStream) -> None:
    stream.start(3)


def done_and_noted(stream: LocalStream) -> None:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("streamlake.pipeline.runs.sink_run._NOTE_EVERY_S", 0.0)
        stream.start(3)


def _dying(*_: object) -> None:
    raise KeyboardInterrupt


def told(stream: LocalStream, name: str, capsys: pytest.CaptureFixture[str]) -> list[str]:
    """What `check` and `recover` say of it; the words of the command that removes it."""
    points = Points()
    directory, is_readable = opened_directory(str(stream.path), None, points)
    assert is_readable
    check_lineage(
        SinkPlan.of(stream.location, {}, "p"),
        open_table(stream.location),
        directory,
        str(stream.path),
        points,
    )
    [warning] = [each.message for each in points.found if each.verdict is Verdict.WARNING]
    assert name in warning
    assert "The start deletes them" in warning
    assert (
        streamlake("recover", stream.location, "--pipeline", "p", "--checkpoint-location", str(stream.path))
        == 1
    )
    shown = capsys.readouterr().out
    assert f"{name} of {stream.path} are empty, cut short or without their plan" in shown.replace(
        "commits/2, ", ""
    )
    [words] = re.findall(r"streamlake (recover .* --remove-torn)", shown)
    return shlex.split(words)


def run_on(
    stream: LocalStream,
    words: list[str] | None,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """By the command, for a query of a plain foreachBatch, or else by the start."""
    if words is not None:
        before = {path: path.read_bytes() for path in stream.path.rglob("*") if path.is_file()}
        assert streamlake(*words) == 0
        assert "Nothing was done yet" in capsys.readouterr().out
        assert before == {path: path.read_bytes() for path in stream.path.rglob("*") if path.is_file()}
        assert streamlake(*words, "--yes") == 0
        assert streamlake(*words, "--yes") == 0
        assert "is whole; nothing was done" in capsys.readouterr().out
        monkeypatch.setattr(local_stream, "remove_torn", lambda home: [])
    stream.start()


def finish(stream: LocalStream, mode: str) -> None:
    rows = [*RECORDS, *MORE]
    assert stream.rows() == (sorted(rows) if mode == "append" else sorted(dict(rows).items()))
    assert stream.directory.torn == []
    check_table(open_table(stream.location), files_exist=True)


STATES = (
    (planned, "append"),
    (staged, "upsert"),
    (swapped, "upsert"),
    (done, "append"),
    (done_and_noted, "append"),
)
CASES = [
    *(
        (state, mode, content, how)
        for state, mode in STATES
        for content in (b"", PLAN[:-2])
        for how in (False, True)
    ),
    *((done, "append", content, False) for content in PLANS if content not in (b"", PLAN[:-2])),
]


@pytest.mark.parametrize(("state", "mode", "content", "by_command"), CASES)
def test_a_torn_plan_loses_no_row(
    tmp_path: Path,
    state: Callable[[LocalStream], None],
    mode: str,
    content: bytes,
    by_command: bool,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Spark plans the checkpoint anew, and other records are in it then. Where the table has it, that is told."""
    stream = LocalStream(tmp_path, list(RECORDS), mode=mode)
    state(stream)
    (stream.path / "offsets" / "2").write_bytes(content)
    words = told(stream, "offsets/2", capsys)
    stream.source.extend(MORE)
    stream.step = 3
    if state in (planned, staged):
        run_on(stream, words if by_command else None, capsys, monkeypatch)
    else:
        with pytest.raises(LineageError, match="is older than the table") as refused:
            run_on(stream, words if by_command else None, capsys, monkeypatch)
        [text] = re.findall(r"`streamlake (recover [^`]*--rollback-table)`", str(refused.value))
        assert streamlake(*shlex.split(text), "--yes") == 0, capsys.readouterr()
        stream.start()
    finish(stream, mode)


@pytest.mark.parametrize("by_command", [False, True])
@pytest.mark.parametrize("content", DONES)
@pytest.mark.parametrize("mode", ["append", "upsert"])
def test_a_torn_commit_entry_loses_no_row(
    tmp_path: Path,
    mode: str,
    content: bytes,
    by_command: bool,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Spark runs the checkpoint again, and the table knows that it has it."""
    stream = LocalStream(tmp_path, list(RECORDS), mode=mode)
    stream.start(3)
    (stream.path / "commits" / "2").write_bytes(content)
    words = told(stream, "commits/2", capsys)
    stream.source.extend(MORE)
    stream.receipts.clear()
    run_on(stream, words if by_command else None, capsys, monkeypatch)
    assert stream.receipts[0].outcome == Outcome.SKIPPED
    finish(stream, mode)


def test_a_rewind_takes_a_torn_plan_along(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    stream = LocalStream(tmp_path, [*RECORDS, *MORE]).start(3)
    (stream.path / "offsets" / "2").write_bytes(PLAN[:-2])
    words = ["recover", stream.location, "--pipeline", "p", "--checkpoint-location", str(stream.path)]
    assert streamlake(*words, "--rewind-to=1", "--yes") == 0
    assert "delete the entries of checkpoint 2" in capsys.readouterr().out
    assert stream.directory.torn == []
    stream.start()
    finish(stream, "append")


def test_every_beginning_of_an_entry_is_torn() -> None:
    for whole, is_torn in ((PLAN, is_torn_plan), (DONE, is_torn_done)):
        assert not is_torn(whole)
        assert not is_torn(whole + b"\n")
        assert [at for at in range(len(whole)) if not is_torn(whole[:at])] == []
        assert is_torn(whole[:-4] + bytes(4))


@pytest.mark.parametrize(
    "content",
    [
        b"v2\n{}\n{}",
        b"v2\n",
        b"v12",
        b"v1\n\n-",
        b"v1\n{}\n17",
        b"v1\n{}\nan offset of its own",
        b"of another",
    ],
)
def test_what_may_be_an_entry_is_not_torn(content: bytes) -> None:
    assert not is_torn_plan(content)


def test_the_start_refuses_them_where_they_are_not_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On storage that is not this machine's."""
    stream = LocalStream(tmp_path, list(RECORDS)).start(3)
    (stream.path / "offsets" / "2").write_bytes(b"")

    class Files:
        def __init__(self, session: Any, home: str) -> None:
            self.system = SimpleNamespace(
                makeQualified=lambda path: SimpleNamespace(toString=lambda: f"hdfs://name{path}")
            )

        def path(self, name: str) -> Path:
            return Path(name.removeprefix("hdfs://name"))

        def read(self, path: Path) -> str | None:
            return path.read_text() if path.exists() else None

        def names(self, name: str) -> list[str]:
            return [each.name for each in self.path(name).iterdir()]

    monkeypatch.setattr(bound_directory, "HadoopFiles", Files)
    monkeypatch.setattr(bound_directory, "remove_what_power_took", lambda session, location: None)
    hadoop = SimpleNamespace(fs=SimpleNamespace(Path=lambda location: location))
    session: Any = SimpleNamespace(
        _jvm=SimpleNamespace(org=SimpleNamespace(apache=SimpleNamespace(hadoop=hadoop)))
    )
    with pytest.raises(
        LineageError, match=r"(?s)commits/2, offsets/2 of hdfs://.* are empty.* --remove-torn"
    ):
        directory_at(session, str(stream.path))
    SparkDirectory(str(stream.path)).remove_torn()
    found = directory_at(session, str(stream.path))
    assert found is not None
    assert found.next_checkpoint == 2
