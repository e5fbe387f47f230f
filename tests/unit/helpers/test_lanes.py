from __future__ import annotations

from pathlib import Path

import pytest

from tests.helpers import jvm
from tests.helpers.lanes import ALONE, TOGETHER, group_of
from tests.helpers.spark import ROOT


def test_a_group_is_a_file_a_test_or_some_files() -> None:
    assert group_of("tests/unit/test_errors.py::test_a[x::y]") == "tests/unit/test_errors.py"
    assert group_of("tests/crash/test_matrix.py::test_a[x]") == "tests/crash/test_matrix.py::test_a[x]"
    assert {group_of(f"{file}::test_a") for file in TOGETHER} == {"flink"}


def test_groups_name_files_that_exist() -> None:
    assert [name for name in (*ALONE, *TOGETHER) if not (ROOT / name).exists()] == []


def test_every_test_that_needs_flink_is_in_one_group() -> None:
    using = [path for path in ROOT.glob("tests/*/test_*.py") if "flink_tables: dict" in path.read_text()]
    assert {path.relative_to(ROOT).as_posix() for path in using} == set(TOGETHER)


def test_jvms_share_an_archive_where_one_is_wanted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(jvm.ARCHIVE_HOME, raising=False)
    assert jvm.quick_jvms()["SPARK_SUBMIT_OPTS"] == jvm.OPTIONS
    monkeypatch.setenv(jvm.ARCHIVE_HOME, str(tmp_path))
    monkeypatch.setattr(jvm, "_MAKER", tmp_path / "missing.py")
    assert jvm.quick_jvms()["SPARK_SUBMIT_OPTS"] == jvm.OPTIONS, "it cannot be made, and is not needed"
    (tmp_path / "spark.jsa").touch()
    assert jvm.quick_jvms()["SPARK_SUBMIT_OPTS"].endswith(f" -XX:SharedArchiveFile={tmp_path}/spark.jsa")
