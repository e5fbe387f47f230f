"""`streamlake rejects`: by cause, one by one, dropped, and with a corrected value that the next replay brings into the table, once."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest

from streamlake import load_table
from streamlake.cli import main as cli
from streamlake.errors import CommitConflictError, InvalidOptionError
from streamlake.failpoints import FailpointError
from streamlake.operate.replay.kept_rejects import EDITED, cause_of, kept_rejects, parsed_place
from streamlake.operate.replay.replay import ReplayedTable, replay
from streamlake.pipeline.runs.rejected.rejects_table import open_rejects
from streamlake.source.kafka_source import KafkaSource
from tests.helpers.invariants import check_table
from tests.helpers.local_rejects import PARTITION, TOPIC, RejectingStream
from tests.helpers.tables import make_table

DDL = "id long, v string"
VALUES = [b'{"id": 1, "v": "a"}', b"{", b'{"id": "x", "v": "b"}', b'{"id": "yyy", "v": "c"}', b"\xff"]
PLACE = f"{TOPIC}-{PARTITION}"


@pytest.fixture
def location(tmp_path: Path) -> str:
    """One row, and four rejects at the offsets 1 to 4, of two checkpoints."""
    table = make_table(tmp_path / "t", DDL)
    stream = RejectingStream(Path(table.location), [VALUES[:3], VALUES[3:]], DDL)
    stream.checkpoint(0)
    stream.checkpoint(1)
    return table.location


def call(*arguments: str) -> int:
    with pytest.raises(SystemExit) as ended:
        cli.main(["rejects", *arguments])
    assert isinstance(ended.value.code, int)
    return ended.value.code


def offsets(location: str) -> list[int]:
    rejects = open_rejects(location)
    assert rejects is not None
    check_table(rejects, files_exist=True)
    return sorted(load_table(rejects.location).scan().to_arrow()["offset"].to_pylist())


def replayed(location: str, ddl: str = DDL) -> Any:
    return replay(ReplayedTable(location, KafkaSource("h:1", TOPIC, schema=ddl), "p"))


def rows(location: str) -> list[tuple[int, str]]:
    found = load_table(location).scan().to_arrow()
    return sorted(zip(found["id"].to_pylist(), found["v"].to_pylist(), strict=True))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("'id' is long, but found text \"x\": a whole number", "'id' is long, but found text \"y\": a whole number"),
        ("bad: line 1 column 2 (char 1)", "bad: line 13 column 4 (char 77)"),
        (f'{EDITED}found "a"', f'{EDITED}found "b"'),
    ],
)  # fmt: skip
def test_messages_that_differ_in_a_value_are_one_cause(one: str, other: str) -> None:
    assert cause_of(one) == cause_of(other) != one


def test_types_and_columns_are_no_values() -> None:
    message = "'amount2' is decimal(10,2), but found text"
    assert cause_of(message) == message


def test_places() -> None:
    assert parsed_place("my-topic-3:17") == parsed_place("my-topic-3 offset 17") == ("my-topic", 3, 17)
    with pytest.raises(InvalidOptionError, match="'17' names no record: give topic, partition and offset"):
        parsed_place("17")


def test_list(location: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert call("list", location) == 0
    text = capsys.readouterr().out
    assert f"{location}__rejects: 4 records, 3 causes" in text
    assert "'id' is long, but found text \"…\": a whole number is needed" in text
    assert f"streamlake rejects edit {location} {PLACE}:2 FILE" in text
    # The rejects table's own name stands for the table, too.
    assert call("list", f"{location}__rejects", "--json") == 0
    [found] = json.loads(capsys.readouterr().out)
    assert found["records"] == 4
    assert [cause["records"] for cause in found["causes"]] == [2, 1, 1]
    assert found["causes"][0]["first"] == f"{PLACE} offset 2"
    assert call("list", location, "--where", "offset = 1", "--json") == 0
    assert json.loads(capsys.readouterr().out)[0]["records"] == 1


def test_a_table_without_rejects(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table = make_table(tmp_path / "t", DDL)
    assert call("list", table.location) == 0
    assert "no rejects" in capsys.readouterr().out
    assert call("drop", table.location, "--all", "--yes") == 1
    assert call("show", table.location, f"{PLACE}:1") == 1
    assert call("edit", table.location, f"{PLACE}:1", __file__) == 1
    assert "there is no such record" in capsys.readouterr().err


def test_a_pipeline_file_names_its_own_rejects(
    location: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    RejectingStream(Path(location), [[b"["]], DDL, pipeline="other").checkpoint(0)
    file = tmp_path / "p.yaml"
    file.write_text(
        f"name: other\nsource:\n  kafka: {{bootstrap-servers: 'h:1', topics: {TOPIC}, schema: '{DDL}'}}\n"
        f"sink: {{table: {location}, on-error: reject}}\ncheckpoint: {tmp_path}/c\n"
    )
    assert call("list", str(file), "--json") == 0
    assert json.loads(capsys.readouterr().out)[0]["records"] == 1
    assert call("list", location, "--json") == 0
    assert json.loads(capsys.readouterr().out)[0]["records"] == 5
    assert call("list", str(file), "--catalog", "x") == 1
    assert "a pipeline file names its catalog itself" in capsys.readouterr().err


def test_show(location: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert call("show", location, f"{PLACE}:2", f"{PLACE}:4") == 0
    text = capsys.readouterr().out
    for shown in (f"{PLACE}:2", '{"id": "x", "v": "b"}', "a whole number is needed", "0xff", "pipeline 'p'"):
        assert shown in text
    assert f"{PLACE}:1" not in text
    assert call("show", location, "--limit", "1", "--json") == 0
    [found] = json.loads(capsys.readouterr().out)
    assert (found["offset"], found["value_text"], found["value"]) == (1, "{", "7b")
    assert call("show", location, f"{PLACE}:2", "--value") == 0
    assert capsys.readouterr().out == '{"id": "x", "v": "b"}'
    assert call("show", location, "--value") == 1
    assert "--value is for one record, and these are 4: name it" in capsys.readouterr().err


def test_drop_says_what_it_would_do(location: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert call("drop", location) == 1
    assert "say what to drop" in capsys.readouterr().err
    assert call("drop", location, "--where", "error_message like '%number%'") == 0
    text = capsys.readouterr().out
    assert "2 records would be dropped" in text
    assert "Nothing was done yet; run this again with --yes." in text
    assert offsets(location) == [1, 2, 3, 4]
    assert call("drop", location, "--where", "error_message like '%number%'", "--yes") == 0
    assert "2 records dropped" in capsys.readouterr().out
    assert offsets(location) == [1, 4]
    assert call("drop", location, f"{PLACE}:1", "--yes") == 0
    assert "1 record dropped" in capsys.readouterr().out
    assert call("drop", location, "--all", "--yes") == 0
    assert offsets(location) == []
    assert call("drop", location, "--all", "--yes") == 1
    # The stream goes on, and rejects again.
    stream = RejectingStream(Path(location), [VALUES[:3], VALUES[3:], [b"{"]], DDL)
    stream.checkpoint(2)
    assert offsets(location) == [5]


def test_a_corrected_value_goes_into_the_table_once(
    location: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "v.json"
    file.write_bytes(b'{"id": 2, "v": "b"}\n')
    assert call("edit", location, f"{PLACE}:2", str(file)) == 0
    assert "Bring it into the table with `streamlake replay-rejects PIPELINE.yaml`" in capsys.readouterr().out
    assert offsets(location) == [1, 2, 3, 4]
    [row] = kept_rejects(location, named=[f"{PLACE}:2"]).records()
    assert row["value"] == b'{"id": 2, "v": "b"}\n'
    assert row["error_message"].startswith(EDITED)
    # Another one from the standard input, twice: the last value counts.
    for value in (b'{"id": "again"}', b'{"id": 3, "v": "c"}'):
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(value)))
        assert call("edit", location, f"{PLACE}:3") == 0
    found = replayed(location)
    assert (found.records, found.failed) == (2, 2)
    assert rows(location) == [(1, "a"), (2, "b"), (3, "c")]
    assert offsets(location) == [1, 4]
    assert replayed(location).records == 0
    assert rows(location) == [(1, "a"), (2, "b"), (3, "c")]


def test_an_edited_value_that_does_not_decode_says_why_after_the_replay(location: str) -> None:
    kept_rejects(location, named=[f"{PLACE}:1"]).edit(b"[")
    assert replayed(location).records == 0
    [row] = kept_rejects(location, named=[f"{PLACE}:1"]).records()
    assert row["value"] == b"["
    assert EDITED not in row["error_message"]


def test_what_is_edited_is_one_record(location: str) -> None:
    with pytest.raises(InvalidOptionError, match="these are 4 records; name one"):
        kept_rejects(location).edit(b"")
    with pytest.raises(InvalidOptionError, match="there is no such record"):
        kept_rejects(location, named=["x-0:1"]).edit(b"")


def test_records_of_a_replay_that_died_are_left_alone(location: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It has brought them into the table: a corrected value would be a second row."""
    kept_rejects(location, named=[f"{PLACE}:2"]).edit(b'{"id": 2, "v": "b"}')

    def dies(*_: object) -> None:
        raise FailpointError("before the records leave the rejects")

    with monkeypatch.context() as patch:
        patch.setattr("streamlake.operate.replay.replay.settle", dies)
        with pytest.raises(FailpointError):
            replayed(location)
    assert rows(location) == [(1, "a"), (2, "b")]
    for change in (lambda found: found.drop(), lambda found: found.edit(b'{"id": 9, "v": "z"}')):
        with pytest.raises(CommitConflictError, match="run `streamlake replay-rejects` to its end first"):
            change(kept_rejects(location, named=[f"{PLACE}:2"]))
    kept_rejects(location, named=[f"{PLACE}:4"]).drop()
    assert replayed(location).recovered == 1
    assert rows(location) == [(1, "a"), (2, "b")]
    assert offsets(location) == [1, 3]


def test_others_that_commit_meanwhile_are_not_undone(location: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another record is rejected, and another command drops one, while this one is at work."""
    chosen, other = kept_rejects(location, named=[f"{PLACE}:1"]), kept_rejects(location, named=[f"{PLACE}:4"])
    stream = RejectingStream(Path(location), [VALUES[:3], VALUES[3:], [b"{"]], DDL)
    stream.checkpoint(2)
    assert chosen.drop() == 1
    assert offsets(location) == [2, 3, 4, 5]
    assert other.drop() == 1
    assert offsets(location) == [2, 3, 5]
