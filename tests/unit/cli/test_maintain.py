"""`streamlake maintain`: what it does by default, what only with --yes, and what it prints."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from streamlake import clock
from streamlake.catalog.open import open_table
from streamlake.cli.main import main
from streamlake.table.updates.update_properties import UpdateProperties
from tests.helpers.batch_write import append
from tests.helpers.tables import make_table


@pytest.fixture
def location(tmp_path: Path) -> str:
    table = make_table(tmp_path / "t")
    for each in range(4):
        append(table, pa.table({"id": pa.array([each], pa.int64()), "category": pa.array(["a"])}))
    litter = Path(table.location, "data", "litter.parquet")
    litter.write_bytes(b"litter")
    then = clock.now_ms() / 1000 - 10 * 86_400
    os.utime(litter, (then, then))
    return table.location


def run(*arguments: str) -> int:
    with pytest.raises(SystemExit) as exit_:
        main(["maintain", *arguments])
    return int(exit_.value.code or 0)


def report(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    assert run(*arguments, "--json") == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def test_a_dry_run_changes_nothing(location: str, capsys: pytest.CaptureFixture[str]) -> None:
    before = sorted(Path(location).rglob("*"))
    assert run(location, "--dry-run", "--older-than", "0s") == 0
    shown = capsys.readouterr().out
    for part in (
        "dry run: nothing was changed",
        "would rewrite 4 of 4 manifests",
        "would expire 3 snapshots",
        "1 file of 6 B that nothing refers to; nothing was deleted",
        "litter.parquet",
    ):
        assert part in shown
    assert sorted(Path(location).rglob("*")) == before


def test_orphans_are_deleted_with_yes_only(location: str, capsys: pytest.CaptureFixture[str]) -> None:
    update = UpdateProperties(open_table(location))
    update.remove("history.expire.max-snapshot-age-ms").remove(
        "history.expire.min-snapshots-to-keep"
    ).commit()
    assert run(location) == 0
    shown = capsys.readouterr().out
    assert f"`streamlake maintain {location} --only orphans --yes` does it" in shown
    assert "left out: the table's properties say neither" in shown
    assert "rewrote 4 of 4 manifests" in shown
    assert Path(location, "data", "litter.parquet").exists()
    assert run(location, "--only", "orphans", "--yes") == 0
    assert "deleted 1 file of 6 B that nothing refers to" in capsys.readouterr().out
    assert not Path(location, "data", "litter.parquet").exists()


def test_json(location: str, capsys: pytest.CaptureFixture[str]) -> None:
    found = report(capsys, location, "--older-than", "0s", "--retain-last", "2")
    assert found["manifests"]["rewritten"] == 4
    assert len(found["expire"]["snapshots"]) == 3
    assert found["expire"]["deleted"] == found["expire"]["manifest_lists"] + found["expire"]["manifests"]
    assert found["orphans"]["files"][0]["path"].endswith("litter.parquet")
    assert (found["before"]["snapshots"], found["after"]["snapshots"]) == (4, 2)
    assert found["care_needed"] == []
    again = report(capsys, location, "--only", "manifests,expire")
    assert (again["orphans"], again["metadata"]) == (None, None)
    assert again["expire"]["snapshots"] == []


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--only", "compaction"], "there is no action 'compaction'"),
        (["--older-than", "long ago"], "--older-than='long ago' is neither an age"),
        (["--orphan-age", "1h"], "at least 24 hours old"),
        (["--branch", "tag"], "is a tag"),
    ],
)
def test_what_is_wrong(
    arguments: list[str], message: str, location: str, capsys: pytest.CaptureFixture[str]
) -> None:
    from streamlake.catalog.open import open_table
    from streamlake.table.updates.manage_refs import ManageRefs

    ManageRefs(open_table(location)).create_tag("tag").commit()
    assert run(location, *arguments) == 1
    assert message in capsys.readouterr().err


def test_no_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(str(tmp_path / "none")) == 1
    assert "there is no Iceberg table" in capsys.readouterr().err


def test_compaction(location: str, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = (location, "--only", "compact", "--option", "min-input-files=2")
    assert run(*arguments, "--dry-run") == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "write small files, and files with many deleted rows, again" in shown
    assert "would rewrite 4 data files" in shown
    assert "in 1 group into about 1 file" in shown
    assert run(*arguments, "--strategy", "sort", "--sort-by", "bucket(2, id), id desc") == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "rewrote 4 data files" in shown
    assert "4 rows) in 1 group into 1 data file" in shown
    assert "data files 4 1" in shown
    found = report(capsys, *arguments)
    assert (found["compact"]["groups"], found["compact"]["snapshots"], found["manifests"]) == ([], [], None)
    again = report(capsys, location, "--only", "compact", "--option", "rewrite-all=true")
    assert (again["compact"]["rewritten"]["files"], again["compact"]["added"]["rows"]) == (1, 4)
    assert again["compact"]["deleted_rows"] == 0
    for wrong, message in (
        (("--option", "min-input-file=2"), "did you mean 'min-input-files'"),
        (("--filter", "id = 3"), "which is no partition column"),
        (("--strategy", "zorder"), "there is no strategy 'zorder'"),
    ):
        assert run(location, "--only", "compact", *wrong) == 1
        assert message in " ".join(capsys.readouterr().err.split())
