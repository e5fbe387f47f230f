from __future__ import annotations

from collections import OrderedDict
from pathlib import Path

import pytest

from tests.helpers import jvm
from tests.helpers.lanes import ALONE, LONG, TOGETHER, Lanes, group_of, turn_of
from tests.helpers.spark import ROOT


def test_a_group_is_a_file_a_test_or_some_files() -> None:
    assert group_of("tests/unit/test_errors.py::test_a[x::y]") == "tests/unit/test_errors.py"
    assert group_of("tests/crash/test_matrix.py::test_a[x]") == "tests/crash/test_matrix.py::test_a[x]"
    assert {group_of(f"{file}::test_a") for file in TOGETHER} == {"flink"}


def test_groups_name_files_that_exist() -> None:
    assert [name for name in (*ALONE, *TOGETHER, *LONG) if not (ROOT / name).exists()] == []


def test_every_test_that_needs_flink_is_in_one_group() -> None:
    using = [path for path in ROOT.glob("tests/*/test_*.py") if "flink_tables: dict" in path.read_text()]
    assert {path.relative_to(ROOT).as_posix() for path in using} == set(TOGETHER)


def test_long_groups_come_first() -> None:
    turns = [turn_of(f"{file}::test_a") for file in (*LONG, "tests/spark/test_sink.py")]
    assert turns == list(range(len(LONG) + 1))


class Process:
    """What the scheduler sees of a process of the run."""

    shutting_down = False

    def __init__(self) -> None:
        self.told: list[int] = []

    def send_runtest_some(self, indices: list[int]) -> None:
        self.told += indices

    def shutdown(self) -> None:
        self.shutting_down = True


def test_a_group_is_handed_out_when_one_test_is_left() -> None:
    names = [f"tests/crash/test_{at}.py::test_a" for at in range(5)]
    lanes = Lanes.__new__(Lanes)
    lanes.log = lambda *_: None
    lanes.workqueue = OrderedDict((name, {name: False}) for name in names)
    one, other = Process(), Process()
    lanes.registered_collections = {one: names, other: names}
    lanes.assigned_work = {one: {}, other: {}}
    for process in (one, other, one, other, one, other):
        lanes._reschedule(process)
    assert (one.told, other.told) == ([0, 2], [1, 3])
    lanes.mark_test_complete(other, 1)
    assert (one.told, other.told) == ([0, 2], [1, 3, 4])
    lanes.mark_test_complete(one, 0)
    assert one.shutting_down
    assert not other.shutting_down


def test_jvms_share_an_archive_where_one_is_wanted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(jvm.ARCHIVE_HOME, raising=False)
    assert jvm.quick_jvms()["SPARK_SUBMIT_OPTS"] == jvm.OPTIONS
    (tmp_path / "broken").mkdir()
    monkeypatch.setenv(jvm.ARCHIVE_HOME, str(tmp_path / "broken"))
    monkeypatch.setattr(jvm, "_WARM_UP", ("-c", "raise SystemExit('no Java')"))
    for _ in range(2):
        assert jvm.quick_jvms()["SPARK_SUBMIT_OPTS"] == jvm.OPTIONS, "it cannot be made, and is not needed"
    assert jvm.warm_up(tmp_path / "broken").stderr == "no Java\n"
    making = (
        "import os, pathlib; home = pathlib.Path(os.environ['XDG_CACHE_HOME'], 'streamlake'); home.mkdir(parents=True);"
        "(home / 'classes-1.jsa').touch(exist_ok=False)"
    )
    monkeypatch.setattr(jvm, "_WARM_UP", ("-c", making))
    monkeypatch.setenv(jvm.ARCHIVE_HOME, str(tmp_path))
    [archive] = jvm.warm_up(tmp_path).archives
    assert archive == tmp_path / "place" / "cache" / "streamlake" / "classes-1.jsa"
    assert jvm.quick_jvms()["SPARK_SUBMIT_OPTS"].endswith(f" -XX:SharedArchiveFile={archive}")
