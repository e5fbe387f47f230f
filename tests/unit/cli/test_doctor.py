"""`streamlake doctor` as a person or a script calls it: exit codes, text, JSON. What it finds is told in test_diagnosis."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest

from streamlake.catalog.open import open_table
from streamlake.cli import main as cli
from tests.helpers.batch_write import append
from tests.helpers.damage import cut_short, left_behind
from tests.helpers.tables import make_table


@pytest.fixture
def location(tmp_path: Path) -> str:
    table = make_table(tmp_path / "t", "id long")
    append(table, pa.table({"id": range(10)}))
    return table.location


def call(*arguments: str) -> int:
    with pytest.raises(SystemExit) as ended:
        cli.main(["doctor", *arguments])
    assert isinstance(ended.value.code, int)
    return ended.value.code


def test_a_healthy_table(location: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert call(location) == 0
    captured = capsys.readouterr()
    assert "verdict" in captured.out
    assert "healthy" in captured.out
    assert "not healthy" not in captured.out
    assert captured.err == ""
    assert call(location, "--json") == 0
    content = json.loads(capsys.readouterr().out)
    assert (content["is_healthy"], content["findings"], content["orphans"]) == (True, [], [])
    assert (content["snapshots"], content["manifests"]) == (1, 1)


def test_violations_come_with_severity_place_and_fix(
    location: str, capsys: pytest.CaptureFixture[str]
) -> None:
    [path] = Path(location, "data").glob("*.parquet")
    cut_short(path)
    left_behind(Path(location, "data", "orphan.parquet"))
    assert call(location) == 1
    text = capsys.readouterr().out
    assert "not healthy: 1 error, 1 warning" in text
    assert text.index("error  file-size") < text.index("warning  orphan-data-files")
    assert f"where  {path}" in text
    assert f"streamlake inspect {location} snapshots" in text
    assert "Files that nothing refers to" in text
    assert "orphan.parquet" in text
    assert call(location, "--json") == 1
    content = json.loads(capsys.readouterr().out)
    assert [(each["severity"], each["check"]) for each in content["findings"]] == [
        ("error", "file-size"),
        ("warning", "orphan-data-files"),
    ]
    assert all(each["where"] and each["what"] and each["fix"] for each in content["findings"])
    assert [(Path(each["path"]).name, each["kind"]) for each in content["orphans"]] == [
        ("orphan.parquet", "data")
    ]


def test_the_age_of_orphans(location: str, capsys: pytest.CaptureFixture[str]) -> None:
    Path(location, "data", "young.parquet").write_bytes(b"1")
    assert call(location) == 0
    assert call(location, "--orphan-age", "0") == 1
    assert "young.parquet" in capsys.readouterr().out


def test_a_name_in_a_catalog(tmp_path: Path) -> None:
    from streamlake import create_table

    catalog = {"type": "hadoop", "warehouse": str(tmp_path / "w")}
    create_table("db.t", "id long", catalog=catalog)
    assert call("db.t", "--catalog", f"type=hadoop,warehouse={tmp_path}/w") == 0


def test_what_cannot_be_looked_at_is_exit_code_2(
    location: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(str(tmp_path / "none")) == 2
    assert "no Iceberg table" in capsys.readouterr().err
    assert call(location, str(tmp_path / "no-checkpoint")) == 2
    assert "no checkpoint directory" in capsys.readouterr().err
    assert call(location, "--catalog", "nonsense,type=hadoop") == 2


def test_what_nobody_foresaw_is_no_verdict(
    location: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(*arguments: object, **more: object) -> None:
        raise RuntimeError("out of order")

    monkeypatch.setattr("streamlake.cli.commands.doctor.diagnose", broken)
    assert call(location) == 2
    assert capsys.readouterr().err == "error: RuntimeError: out of order (--debug shows where)\n"
    assert call(location, "--debug") == 2
    assert "Traceback" in capsys.readouterr().err


def test_it_only_reads(location: str) -> None:
    before = {path: path.stat().st_mtime_ns for path in Path(location).rglob("*")}
    version = open_table(location).operations.current().last_updated_ms
    assert call(location, "--orphan-age", "0") == 0
    assert {path: path.stat().st_mtime_ns for path in Path(location).rglob("*")} == before
    assert open_table(location).operations.current().last_updated_ms == version
