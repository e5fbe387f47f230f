"""Random lives of a stream: crashes, directories and tables put back from copies, rollbacks, foreign commits. Whatever is
refused is put right by a way out that promises every row once, and at the end every row is there once."""

from __future__ import annotations

import random
import re
import shlex
import shutil
from pathlib import Path

import pytest

from streamlake.catalog.open import open_table
from streamlake.cli.main import main
from streamlake.errors import LineageError
from streamlake.pipeline.runs.sink_run import SinkRun
from streamlake.spec.metadata.snapshot import SnapshotRef
from streamlake.table.updates.metadata_changes import with_ref
from streamlake.table.updates.metadata_update import commit_metadata
from tests.helpers.invariants import check_table
from tests.helpers.local_stream import LocalStream, Record

SEEDS = range(10)
LOSERS: tuple[int, ...] = ()
"""Seeds of schedules after which table and directory have nothing in common, so that rows must be lost or doubled."""
STEPS = 14


class NothingInCommonError(Exception):
    """No way out keeps every row once."""


class Life:
    """One stream under a seed's schedule."""

    def __init__(self, home: Path, seed: int, capsys: pytest.CaptureFixture[str]) -> None:
        self.capsys = capsys
        self.random = random.Random(seed)
        self.home = home
        self.mode = self.random.choice(("append", "upsert"))
        self.source: list[Record] = [(number, f"v{number}") for number in range(6)]
        self.stream = LocalStream(home, self.source, mode=self.mode)
        self.history: list[str] = []
        self.foreign = 0

    def live(self) -> None:
        self.run(2)
        for _ in range(STEPS):
            action = self.random.choice(
                (
                    self.run,
                    self.run,
                    self.crash,
                    self.swapped,
                    self.restore_directory,
                    self.restore_table,
                    self.roll_back,
                    self.foreign_commit,
                    self.expire,
                )
            )
            self.history.append(action.__name__)
            action(self.random.randint(1, 2))
            self.source += [(len(self.source) + at, f"v{len(self.source) + at}") for at in range(2)]
        self.run(10**6)

    def run(self, checkpoints: int) -> None:
        self.stream.step = self.random.randint(1, 3)
        for _ in range(4):
            try:
                self.stream.start(checkpoints)
                return
            except LineageError as error:
                self.put_right(str(error))
        raise AssertionError(f"refused again and again: {self.history}")

    def put_right(self, message: str) -> None:
        """Only ways that promise every row once."""
        found = re.findall(r"`streamlake (recover [^`]*(?:--rewind-to=\d+|--rollback-table))`", message)
        assert found, f"{self.history}: {message}"
        self.random.shuffle(found)
        told = ""
        while found:
            text = found.pop(0)
            with pytest.raises(SystemExit) as ended:
                main([*shlex.split(text), "--yes"])
            if ended.value.code == 0:
                self.history.append(text.rpartition("--")[2])
                return
            told = self.capsys.readouterr().err
            better = re.findall(r"use (--rewind-to=\d+)", told)
            if better:
                found = [re.sub(r"--(rewind-to=\d+|rollback-table)", better[0], text)]
        if "adopt the directory" in told or "has expired" in told:
            raise NothingInCommonError
        raise AssertionError(f"no way out works: {self.history}: {message}: {told}")

    def crash(self, _: int) -> None:
        """A driver dies when a checkpoint is staged."""

        def died(*_: object, **__: object) -> None:
            raise KeyboardInterrupt

        commit, SinkRun.commit = SinkRun.commit, died  # type: ignore[method-assign, assignment]
        try:
            self.stream.start(1)
        except (KeyboardInterrupt, LineageError):
            pass
        finally:
            SinkRun.commit = commit  # type: ignore[method-assign]

    def swapped(self, checkpoints: int) -> None:
        """A driver dies when a checkpoint is in the table, and not in Spark's commit log."""
        self.run(checkpoints)
        completed = self.stream.directory.last_completed
        if completed > 0:
            (self.stream.path / "commits" / str(completed)).unlink()

    def restore_directory(self, checkpoints: int) -> None:
        shutil.copytree(self.stream.path, self.home / "copy")
        self.run(checkpoints)
        shutil.rmtree(self.stream.path)
        (self.home / "copy").rename(self.stream.path)

    def restore_table(self, checkpoints: int) -> None:
        shutil.copytree(self.stream.location, self.home / "backup")
        foreign = self.foreign
        self.run(checkpoints)
        if self.random.random() < 0.5:
            self.stream.start(0)
        shutil.rmtree(self.stream.location)
        (self.home / "backup").rename(self.stream.location)
        self.foreign = foreign
        if self.stream.directory.note(self.stream.location, "main").checkpoint_id is not None:  # type: ignore[union-attr]
            self.note_what_is_committed()

    def note_what_is_committed(self) -> None:
        """The note lags behind by ten seconds of a driver's life at most: let them have passed."""
        directory = self.stream.directory
        noted = directory.note(self.stream.location, "main")
        assert noted is not None
        from dataclasses import replace

        known = replace(noted, checkpoint_id=max(directory.last_completed, noted.checkpoint_id or 0))
        directory.write_note(known, self.stream.location, "main")

    def roll_back(self, snapshots: int) -> None:
        metadata = open_table(self.stream.location).metadata
        ancestors = list(metadata.ancestors(metadata.current_snapshot_id))
        own = [each for each in ancestors if "streamlake.job-id" in each.summary]
        if len(own) < 2 or any(each.summary.get("streamlake.pipeline") != "p" for each in own[:3]):
            return
        target = ancestors[min(snapshots, len(ancestors) - 1)]
        commit_metadata(
            open_table(self.stream.location),
            lambda base: with_ref(base, "main", SnapshotRef(target.snapshot_id, "branch")),
        )

    def foreign_commit(self, _: int) -> None:
        """One without rows, so that it does not matter whether it is undone."""
        from streamlake.table.producers.append_files import AppendFiles

        AppendFiles(open_table(self.stream.location)).commit()

    def expire(self, _: int) -> None:
        """All but the last three snapshots of the branch, and those that are on no branch."""
        from dataclasses import replace

        def expired(base: object) -> object:
            kept = [each for each, _ in zip(base.ancestors(base.current_snapshot_id), range(3), strict=False)]  # type: ignore[attr-defined]
            if len(kept) == len(base.snapshots):  # type: ignore[attr-defined]
                return base
            return replace(base, snapshots=tuple(reversed(kept)))  # type: ignore[type-var]

        commit_metadata(open_table(self.stream.location), expired)  # type: ignore[arg-type]


@pytest.mark.parametrize("seed", SEEDS)
def test_every_row_is_there_once_after_whatever_was_recovered(
    seed: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    life = Life(tmp_path, seed, capsys)
    try:
        life.live()
    except NothingInCommonError:
        assert seed in LOSERS, "table and directory have a checkpoint in common"
        return
    assert seed not in LOSERS
    assert life.stream.rows() == sorted(life.source), life.history
    check_table(open_table(life.stream.location), files_exist=True)
