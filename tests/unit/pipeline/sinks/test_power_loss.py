"""Streams on a device that forgets what was not fsynced: the power goes at each fsync in turn, and nothing acknowledged is
lost, in the table and in the checkpoint directory; what Spark's own logs have lost is put right without losing a row."""

from __future__ import annotations

import random
import re
import shlex
from pathlib import Path

import pytest

from streamlake.catalog.open import create
from streamlake.checkpoint import spark_logs
from streamlake.checkpoint.spark_logs import local_home, remove_torn, sync_entries
from streamlake.cli.main import main
from streamlake.errors import LineageError
from streamlake.spec.types.ddl import parse_ddl
from streamlake.storage.durability import FSYNC
from tests.helpers.local_stream import DDL, LocalStream, Record
from tests.helpers.lossy_disk import LossyDisk, PowerLoss
from tests.helpers.tables import FAST_CHECKS, FAST_RETRIES

SOURCE: list[Record] = [(number, f"v{number}") for number in range(10)]
STEP = 2


class Life:
    """A stream of five checkpoints on a machine that loses its power."""

    def __init__(self, home: Path, mode: str, *, fsync: bool = True) -> None:
        home.mkdir()
        self.disk = LossyDisk(home)
        self._home = home
        self._mode = mode
        self._properties = {**FAST_RETRIES, **FAST_CHECKS, FSYNC: str(fsync).lower()}

    def stream(self, source: list[Record] = SOURCE, step: int = STEP) -> LocalStream:
        return LocalStream(self._home, source, mode=self._mode, step=step)

    def begin(self, checkpoints: int) -> LocalStream:
        """The table and the first checkpoints."""
        create(str(self._home / "table"), parse_ddl(DDL), properties=self._properties)
        return self.stream().start(checkpoints)

    def goes_on_until(self, stream: LocalStream, at: int, chance: random.Random | None) -> int | None:
        """How many rows Spark was told to be done when the power went, at the `at`-th fsync; None where there are fewer."""
        self.disk.cut_after(at)
        try:
            stream.go_on()
        except PowerLoss:
            done = stream.directory.last_completed + 1
            self.disk.come_back(chance)
            return done * STEP
        return None


@pytest.mark.parametrize("seed", [None, 1])
@pytest.mark.parametrize(("mode", "every"), [("append", 1), ("upsert", 3)])
def test_nothing_acknowledged_is_lost_wherever_the_power_goes(
    tmp_path: Path, mode: str, every: int, seed: int | None
) -> None:
    """Spark's own entries are among what chance decides: each may be there, or gone, or empty."""
    at, done = 0, 0
    while True:
        life = Life(tmp_path / f"home-{at}", mode)
        with life.disk.at_work():
            found = life.goes_on_until(life.begin(2), at, None if seed is None else random.Random(seed + at))
            if found is None:
                break
            done = found
            again = life.stream()
            assert set(SOURCE[:done]) <= set(again.rows()), f"rows are lost at fsync {at}"
            again.start()
            assert again.rows() == SOURCE, f"at fsync {at}"
        at += every
    assert at > 30
    assert done == len(SOURCE) - STEP


@pytest.mark.parametrize("mode", ["append", "upsert"])
def test_without_fsync_what_was_acknowledged_is_lost(tmp_path: Path, mode: str) -> None:
    life = Life(tmp_path / "home", mode, fsync=False)
    with life.disk.at_work():
        stream = life.begin(10)
        assert stream.rows() == SOURCE
        life.disk.come_back()
        with pytest.raises(Exception, match=r"no Iceberg table|there is no such file"):
            life.stream().rows()


@pytest.mark.parametrize("lost", [("commits",), ("offsets",), ("commits", "offsets")], ids="-".join)
@pytest.mark.parametrize("mode", ["append", "upsert"])
def test_what_sparks_logs_have_lost_loses_no_row(
    tmp_path: Path,
    mode: str,
    lost: tuple[str, ...],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A disk of a version that synced no entry of Spark's, or one that has lost what it acknowledged."""
    life = Life(tmp_path / "home", mode)
    with life.disk.at_work():
        stream = life.begin(10)
        last = stream.directory.last_planned
        for log in lost:
            (stream.path / log / str(last)).unlink()
        again = life.stream([*SOURCE, (10, "v10")], STEP + 1)
        if "offsets" in lost:
            with pytest.raises(LineageError) as refused:
                again.start()
            [text, *_] = re.findall(r"`streamlake (recover [^`]*--rollback-table)`", str(refused.value))
            with pytest.raises(SystemExit) as ended:
                main([*shlex.split(text), "--yes"])
            assert ended.value.code == 0, capsys.readouterr()
        again.start()
        assert again.rows() == [*SOURCE, (10, "v10")]


def test_entries_that_are_empty_or_have_no_plan_are_removed(tmp_path: Path) -> None:
    stream = LocalStream(tmp_path, SOURCE, step=STEP).start()
    home = stream.path
    for name in ("offsets/4", "sources/0/3"):
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        (home / name).write_bytes(b"")
        (home / name).with_name(f".{Path(name).name}.crc").write_bytes(b"crc")
    (home / "sources/0/2.compact").write_text("v1\n{}")
    assert remove_torn(str(home)) == ["offsets/4", "commits/4", "sources/0/3"]
    assert sorted(path.name for path in (home / "sources" / "0").iterdir()) == ["2.compact"]
    assert stream.directory.completed == stream.directory.planned == [0, 1, 2, 3]
    assert remove_torn(str(home)) == []
    (home / "metadata").write_bytes(b"")
    assert remove_torn(str(home)) == ["metadata"]
    assert remove_torn(str(tmp_path / "never-started")) == []


def test_what_a_checkpoint_refers_to_is_durable_with_its_sources(tmp_path: Path) -> None:
    home = tmp_path / "home"
    for name in ("checkpoint/metadata", "checkpoint/offsets/0", "checkpoint/sources/0/9.compact"):
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        (home / name).write_text("of Spark")
    with LossyDisk(home).at_work() as disk:
        sync_entries(str(home / "checkpoint"), 0)
        disk.come_back()
    found = {str(path.relative_to(home)) for path in home.rglob("*") if path.is_file()}
    assert found == {"checkpoint/metadata", "checkpoint/offsets/0", "checkpoint/sources/0/9.compact"}
    sync_entries(str(home / "checkpoint"), 7)  # named otherwise by another file manager: no error


def test_only_directories_of_this_machine_are_looked_at() -> None:
    assert local_home("file:/lake/c/") == local_home("/lake/c") == "/lake/c"
    assert local_home("hdfs://name/lake/c") is None
    assert spark_logs._numbers("/nowhere") == []
