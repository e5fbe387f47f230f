"""`streamlake index` on tables that were upserted into without Spark."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from streamlake import load_table
from streamlake.catalog.open import open_table
from streamlake.cli import main as cli
from streamlake.cli.commands import index
from streamlake.commit.marker import INDEX_STATE
from streamlake.errors import IndexDamagedError, InvalidOptionError, SchemaMismatchError
from streamlake.index.state import IndexState
from streamlake.pipeline.key_index.index_files import load_state
from streamlake.pipeline.key_index.index_states import named_states
from streamlake.pipeline.key_index.indexed_rows import IndexedRows
from streamlake.table.updates.manage_refs import ManageRefs
from streamlake.table.updates.update_properties import UpdateProperties
from tests.helpers.batch_write import append
from tests.helpers.invariants import check_table
from tests.helpers.local_upserts import LocalUpserts
from tests.helpers.tables import make_table


def changes(rows: dict[int, int]) -> pa.Table:
    return pa.table({"id": pa.array(list(rows), pa.int64()), "v": pa.array(list(rows.values()), pa.int64())})


@pytest.fixture
def stream(tmp_path: Path) -> LocalUpserts:
    """Three checkpoints; 100 live rows."""
    location = str(tmp_path / "t")
    make_table(tmp_path / "t", "id long, v long", format_version=3)
    upserts = LocalUpserts(location, key=["id"], sequence_by=["v"])
    upserts.checkpoint(changes({key: key for key in range(80)}))
    upserts.checkpoint(changes(dict.fromkeys(range(10), 1000)))
    upserts.checkpoint(changes({key: key for key in range(80, 100)}))
    return upserts


def call(what: str, location: str, *options: str) -> int:
    with pytest.raises(SystemExit) as ended:
        cli.main(["index", what, location, *options])
    assert isinstance(ended.value.code, int)
    return ended.value.code


def answer(what: str, location: str, capsys: pytest.CaptureFixture[str], *options: str, code: int = 0) -> Any:
    assert call(what, location, "--json", *options) == code
    return json.loads(capsys.readouterr().out)


def live(location: str, branch: str = "main") -> dict[int, int]:
    rows = load_table(location).scan(ref=branch).to_arrow().to_pylist()
    found = {row["id"]: row["v"] for row in rows}
    assert len(found) == len(rows), "a key has two rows"
    return found


def break_index(location: str, drop: int) -> None:
    """Make the newest state forget the first `drop` runs, as a bug would, and name it for the head."""
    table = open_table(location)
    head = table.current_snapshot
    state = load_state(table, head.summary[INDEX_STATE])
    broken = IndexState(**{**vars(state), "runs": state.runs[drop:]})
    data = broken.to_bytes()
    path = table.locations.index_state(hashlib.sha256(data).hexdigest()[:32])
    table.io.write_bytes(path, data)
    value = json.dumps({"snapshot-id": head.snapshot_id, "path": path, "columns": "1/2"})
    UpdateProperties(table).set("streamlake.index-state.main", value).commit()


def test_status(stream: LocalUpserts, capsys: pytest.CaptureFixture[str]) -> None:
    content = answer("status", stream.location, capsys)
    head = open_table(stream.location).current_snapshot
    assert (content["snapshot_id"], content["head_snapshot_id"]) == (head.snapshot_id, head.snapshot_id)
    assert (content["key"], content["sequence_by"], content["buckets"]) == (["id"], ["v"], 2)
    assert content["entries"] == 110
    assert content["runs"] == 6
    assert content["bytes"] == sum(path.stat().st_size for path in Path(stream.location).rglob("*.run"))
    assert (content["missing_runs"], content["snapshots_above"], content["data_files_above"]) == ([], 0, 0)
    assert not content["is_rebuilt"]
    assert call("status", stream.location) == 0
    text = capsys.readouterr().out
    assert "all there" in text
    assert str(head.snapshot_id) in text


def test_status_tells_what_lies_above(stream: LocalUpserts, capsys: pytest.CaptureFixture[str]) -> None:
    append(open_table(stream.location), changes({1_000: 1, 1_001: 2}))
    append(open_table(stream.location), changes({1_002: 1}))
    content = answer("status", stream.location, capsys)
    assert (content["snapshots_above"], content["data_files_above"], content["rows_above"]) == (2, 2, 3)
    assert call("status", stream.location) == 0
    assert "2 data files with 3 rows, from 2 snapshots above" in capsys.readouterr().out


def test_status_names_missing_and_damaged_files(
    stream: LocalUpserts, capsys: pytest.CaptureFixture[str]
) -> None:
    first, second, *_ = sorted(Path(stream.location).rglob("*.run"))
    first.unlink()
    second.write_bytes(second.read_bytes()[:-1])
    content = answer("status", stream.location, capsys)
    assert sorted(content["missing_runs"]) == [str(first), str(second)]
    with pytest.raises(IndexDamagedError, match="rebuild"):
        index.run("check", stream.location, True, None, "main", None, None)
    Path(content["state"]).write_bytes(b"?")
    content = answer("status", stream.location, capsys)
    assert content["state"] in content["problem"]
    assert content["runs"] is None
    assert call("check", stream.location) == 1
    assert "key index" in capsys.readouterr().err
    assert answer("rebuild", stream.location, capsys)["missing_runs"] == []
    assert answer("check", stream.location, capsys)["is_good"]


def test_check_finds_every_row(stream: LocalUpserts, capsys: pytest.CaptureFixture[str]) -> None:
    stream.checkpoint(changes({3: 2_000, 200: 1}))
    append(open_table(stream.location), changes({5_000: 1}))
    content = answer("check", stream.location, capsys)
    assert content["is_good"]
    assert content["live_rows"] == 101
    assert content["examples"] == []
    assert content["rows_above"] == 1
    assert call("check", stream.location) == 0
    assert "every live row is found" in capsys.readouterr().out


def test_check_counts_places_that_are_dead(stream: LocalUpserts, capsys: pytest.CaptureFixture[str]) -> None:
    """Equality deletes take rows without telling the index."""
    LocalUpserts(stream.location, key=["id"], delete_mode="equality", job_id="e", pipeline="e").checkpoint(
        changes({1: 1, 2: 2})
    )
    content = answer("check", stream.location, capsys)
    assert content["is_good"]
    assert content["dead_places"] == 2
    assert (content["live_rows"], content["rows_above"]) == (98, 2)


def test_check_finds_what_the_index_misses(stream: LocalUpserts, capsys: pytest.CaptureFixture[str]) -> None:
    break_index(stream.location, 2)
    content = answer("check", stream.location, capsys, code=1)
    assert (content["missing_rows"], content["rows_at_wrong_positions"]) == (20, 0)
    assert len(content["examples"]) == 5
    assert {example["problem"] for example in content["examples"]} == {"missing"}
    assert all(80 <= example["key"]["id"] < 100 for example in content["examples"])
    break_index(stream.location, 4)
    content = answer("check", stream.location, capsys, code=1)
    assert (content["missing_rows"], content["rows_at_wrong_positions"]) == (20, 10)
    assert call("check", stream.location) == 1
    captured = capsys.readouterr()
    assert "misses 20 live rows and has wrong positions for 10, of 100" in captured.err
    assert "id=8" in captured.out


def test_rebuild_is_used_by_the_next_run(
    stream: LocalUpserts, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    break_index(stream.location, 4)
    content = answer("rebuild", stream.location, capsys)
    assert content["is_rebuilt"]
    assert (content["entries"], content["buckets"], content["sequence_by"]) == (100, 2, ["v"])
    assert answer("check", stream.location, capsys)["is_good"]
    stream.restart()
    with monkeypatch.context() as patched:
        patched.setattr(IndexedRows, "index", lambda *args: pytest.fail("no data file has to be read"))
        stream.checkpoint(changes({5: 3_000, 90: 3_000, 91: 1}))
    expected = {**{key: key for key in range(100)}, **dict.fromkeys(range(10), 1000), 5: 3_000, 90: 3_000}
    assert live(stream.location) == expected
    check_table(open_table(stream.location))
    newest = next(named_states(open_table(stream.location).metadata, "main"))
    assert not newest.is_rebuilt, "the checkpoint's own state counts now"


def test_a_running_stream_takes_a_rebuilt_index_up(
    stream: LocalUpserts, capsys: pytest.CaptureFixture[str]
) -> None:
    break_index(stream.location, 4)
    stream.restart()
    stream.checkpoint(changes({500: 1}))
    assert answer("check", stream.location, capsys, code=1)["missing_rows"] == 20
    answer("rebuild", stream.location, capsys)
    stream.checkpoint(changes({5: 3_000, 90: 3_000}))
    assert answer("check", stream.location, capsys)["is_good"]
    assert live(stream.location)[5] == 3_000


def test_a_rebuilt_index_counts_for_its_snapshot_only(
    stream: LocalUpserts, capsys: pytest.CaptureFixture[str]
) -> None:
    """After a rollback below its snapshot it must not be used: it knows rows that are not there."""
    table = open_table(stream.location)
    before = table.current_snapshot
    append(table, changes({7_000: 1}))
    answer("rebuild", stream.location, capsys)
    ManageRefs(table.refresh()).set_branch("main", before.snapshot_id).commit()
    content = answer("status", stream.location, capsys)
    assert (content["snapshot_id"], content["is_rebuilt"]) == (before.snapshot_id, False)
    stream.restart()
    stream.checkpoint(changes({7_000: 5}))
    assert live(stream.location)[7_000] == 5
    assert answer("check", stream.location, capsys)["is_good"]


def test_branches_have_their_own(stream: LocalUpserts, capsys: pytest.CaptureFixture[str]) -> None:
    head = open_table(stream.location).current_snapshot
    ManageRefs(open_table(stream.location)).create_branch("audit", head.snapshot_id).commit()
    append(open_table(stream.location), changes({7_000: 1}), branch="audit")
    assert answer("rebuild", stream.location, capsys, "--branch", "audit")["entries"] == 101
    assert answer("status", stream.location, capsys)["entries"] == 110
    audit = LocalUpserts(
        stream.location, key=["id"], sequence_by=["v"], branch="audit", job_id="audit", pipeline="audit"
    )
    audit.checkpoint(changes({7_000: 2}))
    assert live(stream.location, "audit")[7_000] == 2
    assert 7_000 not in live(stream.location)


def test_a_table_that_another_engine_wrote(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table = make_table(tmp_path / "t", "id long, v long", format_version=2)
    location = table.location
    assert call("status", location) == 1
    assert "name the key's columns with --key" in capsys.readouterr().err
    assert call("rebuild", location, "--key", "id") == 1
    assert "has no snapshot, so there is nothing to index" in capsys.readouterr().err
    append(table, changes({key: key for key in range(50)}))
    content = answer("status", location, capsys, "--key", "id")
    assert (content["state"], content["rows_above"]) == (None, 50)
    assert call("status", location, "--key", "id") == 0
    assert "none yet" in capsys.readouterr().out
    assert call("check", location, "--key", "id") == 1
    assert "streamlake index rebuild" in capsys.readouterr().err
    assert answer("rebuild", location, capsys, "--key", "id", "--sequence-by", "v")["entries"] == 50
    content = answer("check", location, capsys)
    assert (content["is_good"], content["key"], content["sequence_by"]) == (True, ["id"], ["v"])


def test_wrong_arguments(stream: LocalUpserts) -> None:
    def status(branch: str = "main", key: str | None = None, sequence_by: str | None = None) -> int:
        return index.run("status", stream.location, True, None, branch, key, sequence_by)

    with pytest.raises(InvalidOptionError, match=r"no branch 'adit'; it has main"):
        status(branch="adit")
    with pytest.raises(SchemaMismatchError, match=r"'idd' is not a column of the table\. Did you mean 'id'"):
        status(key="idd")
    with pytest.raises(SchemaMismatchError, match="sequence_by column 'w'"):
        status(key="id", sequence_by="w")
