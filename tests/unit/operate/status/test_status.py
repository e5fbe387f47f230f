"""`streamlake status`: lag in committed offsets, the pace, what is told when something is missing; and how it is shown."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from streamlake import clock
from streamlake.checkpoint.heartbeat import (
    HEARTBEAT_PATH,
    SILENT_SECONDS,
    DriverError,
    DriverState,
    Heartbeat,
    heartbeat_to_bytes,
)
from streamlake.checkpoint.identity import CheckpointIdentity
from streamlake.checkpoint.spark_directory import SparkDirectory
from streamlake.checkpoint.table_log import logged_table, table_log_path, table_log_to_bytes
from streamlake.cli import main as cli
from streamlake.cli.commands.status import exit_code
from streamlake.cli.views.rendering import human_duration
from streamlake.commit.marker import marker_summary
from streamlake.errors import DataInvalidError, SchemaMismatchError, SourceError
from streamlake.operate.status import status as statuses
from streamlake.operate.status.driver_status import RunState, driver_status
from streamlake.operate.status.status import status_of, status_of_table
from streamlake.pipeline.definition.pipeline_file import load_pipeline, parse_pipeline
from streamlake.pipeline.sinks.discovered_tables import TABLES_PATH, tables_to_bytes
from streamlake.pipeline.sinks.quarantine import quarantine_to_bytes, quarantined
from streamlake.source.offsets import Partition, SourceOffsets
from streamlake.table.producers.append_files import AppendFiles
from streamlake.table.table import Table
from tests.helpers.batch_write import append, write_files
from tests.helpers.fake_cluster import FakeCluster
from tests.helpers.tables import make_table

PIPELINE = """
name: {name}
source: {{kafka: {{bootstrap-servers: b:1, topics: orders, schema: id long}}}}
sink: {{table: {table}}}
checkpoint: {checkpoint}
"""
JOB = "job-1"


class Stream:
    """What a stream of the topic `orders` leaves behind: a table with its commits, a checkpoint directory, a broker."""

    def __init__(self, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now_ms = 1_700_000_000_000
        monkeypatch.setattr(clock, "now_ms", lambda: self.now_ms)
        self.table: Table = make_table(home / "t", "id long")
        self.checkpoint = home / "checkpoint"
        self.checkpoint.mkdir()
        (self.checkpoint / "metadata").write_text(json.dumps({"id": JOB}))
        self.cluster = FakeCluster({("orders", 0): (0, 100), ("orders", 1): (5, 50)})
        self.file = home / "orders.yaml"
        self.file.write_text(
            PIPELINE.format(name="orders", table=self.table.location, checkpoint=self.checkpoint)
        )
        monkeypatch.setattr(statuses, "KafkaCluster", self.cluster.of)

    def commit(
        self,
        checkpoint_id: int,
        positions: Mapping[Partition, int],
        rows: int = 10,
        pipeline: str = "orders",
        summary: Mapping[str, str] | None = None,
    ) -> None:
        operation = AppendFiles(self.table)
        for file in write_files(self.table, pa.table({"id": range(rows)})).data_files:
            operation.append_file(file)
        identity = CheckpointIdentity(pipeline, JOB, checkpoint_id, (), (SourceOffsets(positions).to_text(),))
        operation.set_summary({**marker_summary(identity), **(summary or {})})
        operation.commit()

    def status(self, name: str = "orders") -> statuses.PipelineStatus:
        text = PIPELINE.format(name=name, table=self.table.location, checkpoint=self.checkpoint)
        with status_of(parse_pipeline(text, "p.yaml", {})) as reader:
            return reader.read()

    def lags(self) -> list[tuple[Any, ...]]:
        return [(each.partition, each.committed, each.end, each.lag) for each in self.status().partitions]


@pytest.fixture
def stream(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Stream:
    return Stream(tmp_path, monkeypatch)


def test_lag_is_what_the_table_does_not_have(stream: Stream) -> None:
    stream.commit(0, {("orders", 0): 40, ("orders", 1): 5})
    stream.commit(1, {("orders", 0): 60, ("orders", 1): 50})
    found = stream.status()
    assert stream.lags() == [(0, 60, 100, 40), (1, 50, 50, 0)]
    assert (found.name, found.lag, found.notes, found.problems) == ("orders", 40, (), ())
    [table] = found.tables
    assert (table.checkpoint_id, table.job_id, table.records, table.data_files) == (1, JOB, 20, 2)


def test_nothing_is_committed_yet(stream: Stream) -> None:
    assert stream.lags() == [(0, None, 100, 100), (1, None, 50, 45)]
    append(stream.table, pa.table({"id": [1]}))
    assert stream.status().tables[0].checkpoint_id is None


def test_another_streams_commits_do_not_count(stream: Stream) -> None:
    stream.commit(7, {("orders", 0): 40, ("orders", 1): 50})
    append(stream.table, pa.table({"id": [1]}))
    assert stream.status().tables[0].checkpoint_id == 7
    stream.checkpoint.joinpath("metadata").write_text(json.dumps({"id": "another"}))
    assert stream.status().tables[0].checkpoint_id is None
    stream.checkpoint.joinpath("metadata").unlink()
    found = stream.status()
    assert found.tables[0].checkpoint_id == 7
    assert "no query has been started" in found.notes[0]
    assert stream.status(name="other").tables[0].checkpoint_id is None


HOUR_MS = 3600 * 1000


def beat(stream: Stream, state: DriverState = DriverState.RUNNING, **values: Any) -> Heartbeat:
    """Leave a heartbeat of a run that began an hour ago; it was written now."""
    given = {"started_ms": stream.now_ms - HOUR_MS, "at_ms": stream.now_ms, **values}
    made = Heartbeat("run", state, "here", 4711, **given)
    path = stream.checkpoint / HEARTBEAT_PATH
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(heartbeat_to_bytes(made))
    return made


def state_of(stream: Stream) -> tuple[str, int]:
    found = stream.status()
    assert found.driver is not None
    return found.driver.state.value, exit_code(found)


def test_a_pipeline_runs_or_is_idle_or_has_ended(stream: Stream) -> None:
    stream.commit(0, {("orders", 0): 40, ("orders", 1): 5})
    found = stream.status()
    assert (found.driver, exit_code(found)) == (None, 0)
    beat(stream)
    assert state_of(stream) == ("running", 0)
    stream.commit(1, {("orders", 0): 100, ("orders", 1): 50})
    assert state_of(stream) == ("idle", 0)
    beat(stream, DriverState.ENDED)
    assert state_of(stream) == ("ended", 0)
    beat(stream, DriverState.STOPPED)
    assert state_of(stream) == ("stopped", 3)
    beat(stream, DriverState.FAILED, error=DriverError("LineageError: gone", stream.now_ms))
    assert state_of(stream) == ("failed", 4)
    assert stream.status().driver.error == "LineageError: gone"  # type: ignore[union-attr]


def test_a_driver_that_says_nothing_any_more_is_not_heard_from(stream: Stream) -> None:
    stream.commit(0, {("orders", 0): 40, ("orders", 1): 5})
    beat(stream)
    stream.now_ms += round(SILENT_SECONDS * 1000)
    assert state_of(stream) == ("running", 0)
    stream.now_ms += 1
    assert state_of(stream) == ("silent", 5)
    beat(stream, DriverState.STOPPED)
    stream.now_ms += HOUR_MS
    assert state_of(stream) == ("stopped", 3)


def test_a_problem_is_more_than_a_stop_and_less_than_a_failure(stream: Stream) -> None:
    stream.commit(0, {("orders", 0): 400, ("orders", 1): 5})
    beat(stream, DriverState.STOPPED)
    assert state_of(stream) == ("stopped", 1)
    beat(stream, DriverState.FAILED)
    assert state_of(stream) == ("failed", 4)


def test_without_a_lag_a_driver_that_waits_for_its_trigger_is_idle(stream: Stream) -> None:
    waiting = beat(stream, is_waiting=True)
    assert driver_status(waiting, None).state is RunState.IDLE
    assert driver_status(replace(waiting, checkpoint_ms=stream.now_ms - 1), None).state is RunState.RUNNING
    assert driver_status(replace(waiting, is_waiting=False), None).state is RunState.RUNNING


def test_the_last_error_of_an_earlier_run_is_shown_for_a_day(stream: Stream) -> None:
    error = DriverError("SourceError: no broker", stream.now_ms - 23 * HOUR_MS)
    made = beat(stream, error=error)
    assert driver_status(made, 1).error == "SourceError: no broker"
    stream.now_ms += 2 * HOUR_MS
    assert driver_status(beat(stream, error=error), 1).error is None
    assert driver_status(beat(stream, DriverState.FAILED, error=error), 1).error == "SourceError: no broker"


def test_a_damaged_heartbeat_is_none(stream: Stream) -> None:
    beat(stream)
    (stream.checkpoint / HEARTBEAT_PATH).write_text('{"state"')
    assert stream.status().driver is None


def test_how_long_the_lag_takes_at_the_pace_of_this_run(stream: Stream) -> None:
    stream.commit(0, {("orders", 0): 0, ("orders", 1): 5})
    stream.now_ms += 10 * HOUR_MS
    started = stream.now_ms
    stream.commit(1, {("orders", 0): 10, ("orders", 1): 5})
    stream.now_ms += 2_000
    stream.commit(2, {("orders", 0): 40, ("orders", 1): 15})
    beat(stream, started_ms=started)
    found = stream.status()
    assert (found.lag, found.tables[0].offsets_per_second) == (95, 20.0)
    assert found.seconds_left == pytest.approx(95 / 20)
    beat(stream, DriverState.STOPPED, started_ms=started)
    assert stream.status().seconds_left is None


def test_the_nearest_topic_is_named(stream: Stream) -> None:
    stream.file.write_text(stream.file.read_text().replace("topics: orders", "topics: ordres"))
    with status_of(load_pipeline(stream.file)) as reader:
        [problem] = reader.read().problems
    assert problem.endswith("has no topic ordres, or does not show it to this user; did you mean 'orders'?")


def test_pace_and_age(stream: Stream, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(25):
        stream.now_ms += 2_000
        stream.commit(number, {("orders", 0): number}, rows=100 if number < 24 else 500)
    stream.now_ms += 65_000
    [table] = stream.status().tables
    assert table.seconds_since_commit == 65
    # Nineteen checkpoints of the last twenty: the first only tells when they began.
    assert table.rows_per_second == pytest.approx((18 * 100 + 500) / 38, abs=0.1)


def test_one_commit_has_no_pace(stream: Stream) -> None:
    stream.commit(0, {("orders", 0): 1})
    assert stream.status().tables[0].rows_per_second is None


def test_rejects_and_deletes_and_watermark(stream: Stream) -> None:
    stream.commit(
        0, {("orders", 0): 1}, summary={"streamlake.rejected-records": "3", "streamlake.watermark-ms": "1"}
    )
    stream.commit(
        1, {("orders", 0): 2}, summary={"streamlake.rejected-records": "4", "streamlake.watermark-ms": "17"}
    )
    [table] = stream.status().tables
    assert (table.rejected, table.rejects, table.delete_files, table.watermark_ms) == (7, None, 0, 17)
    rejects = make_table(Path(stream.table.location + "__rejects"), "id long")
    assert stream.status().tables[0].rejects == 0
    append(rejects, pa.table({"id": range(5)}))
    assert stream.status().tables[0].rejects == 5


def test_offsets_that_are_too_many_for_the_summary_come_from_the_directory(stream: Stream) -> None:
    positions = {("orders", part): part * 10**12 for part in range(2_000)}
    stream.commit(3, positions)
    assert stream.status().tables[0].offsets is None
    assert "directory record which offsets" in stream.status().notes[0]
    log = stream.checkpoint / "offsets"
    log.mkdir()
    (log / "3").write_text(f"v1\n{{}}\n{SourceOffsets(positions).to_text()}\n")
    stream.cluster.logs = {key: (0, offset + 1) for key, offset in positions.items()}
    found = stream.status()
    assert (found.lag, found.notes) == (2_000, ())


def test_what_cannot_go_on_is_a_problem(stream: Stream) -> None:
    stream.commit(0, {("orders", 0): 120, ("orders", 1): 2, ("orders", 2): 9})
    found = stream.status()
    made_anew, expired, gone = found.problems
    assert "orders-0 ends at offset 100, before the committed offset 120" in made_anew
    assert "orders-1: offsets 2 to 4 are no longer in Kafka" in expired
    assert "orders-2, committed up to offset 9" in gone
    assert [each.lag for each in found.partitions] == [0, 45, None]
    assert found.lag is None


def test_a_broker_that_does_not_answer(stream: Stream, capsys: pytest.CaptureFixture[str]) -> None:
    stream.commit(0, {("orders", 0): 10})

    def silent() -> None:
        raise SourceError("Kafka at b:1 cannot be asked")

    stream.cluster.topics = silent  # type: ignore[method-assign, assignment]
    found = stream.status()
    assert (found.problems, found.lag) == (("Kafka at b:1 cannot be asked",), None)
    assert stream.lags() == [(0, 10, None, None)]
    assert call(str(stream.file)) == 1
    assert "cannot be asked" in capsys.readouterr().out


def test_a_table_that_is_not_there_yet(stream: Stream, tmp_path: Path) -> None:
    text = PIPELINE.format(name="p", table=tmp_path / "none", checkpoint=stream.checkpoint)
    with status_of(parse_pipeline(text, "p.yaml", {})) as reader:
        found = reader.read()
    assert not found.tables[0].exists
    assert found.lag == 145


@pytest.mark.parametrize("more", [[], ["--json"], ["--watch"]])
def test_a_path_without_a_table_is_an_error(
    more: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(str(tmp_path / "none"), *more) == 1
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.startswith(f"error: there is no Iceberg table at {tmp_path}/none")
    assert "check the location, or create the table first" in shown.err
    assert len(shown.err.splitlines()) == 1


def test_the_newest_commit_of_any_table_tells(stream: Stream, tmp_path: Path) -> None:
    """A table that a checkpoint has no rows for is not committed to, and does not make the pipeline late."""
    stream.commit(0, {("orders", 0): 10})
    other = make_table(tmp_path / "other", "id long")
    first, stream.table = stream.table, other
    stream.now_ms += 1_000
    stream.commit(4, {("orders", 0): 90, ("orders", 1): 50})
    targets = [statuses.StatusTarget(first.location), statuses.StatusTarget(other.location)]
    source = statuses.KafkaSource("b:1", "orders")
    with statuses.StatusReader(lambda topics, named: targets, source, str(stream.checkpoint)) as reader:
        found = reader.read()
    assert [each.checkpoint_id for each in found.tables] == [0, 4]
    assert found.lag == 10


def test_a_table_that_lacks_a_checkpoint_holds_back_the_lag(stream: Stream, tmp_path: Path) -> None:
    """Its records failed, or are staged: what another table has committed meanwhile is not its own."""
    first, other = stream.table, make_table(tmp_path / "other", "id long")
    source = statuses.KafkaSource("b:1", "orders")
    ends: list[dict[Partition, int]] = [
        {("orders", 0): 10 * number, ("orders", 1): 50} for number in (1, 4, 9)
    ]
    for name in ("offsets", "commits"):
        (stream.checkpoint / name).mkdir()

    def planned(checkpoint_id: int) -> None:
        log = SourceOffsets(ends[checkpoint_id]).to_text()
        (stream.checkpoint / "offsets" / str(checkpoint_id)).write_text(f"v1\n{{}}\n{log}\n")

    def commit(table: Table, checkpoint_id: int) -> None:
        stream.table = table
        stream.now_ms += 1_000
        stream.commit(checkpoint_id, ends[checkpoint_id])

    def found() -> statuses.PipelineStatus:
        targets = [statuses.StatusTarget(first.location), statuses.StatusTarget(other.location)]
        with statuses.StatusReader(lambda topics, named: targets, source, str(stream.checkpoint)) as reader:
            return reader.read()

    planned(0)
    commit(first, 0)
    commit(other, 0)
    (stream.checkpoint / "commits" / "0").write_text("v1\n{}")
    assert (found().lag, found().notes) == (90, ())
    planned(1)
    commit(other, 1)
    behind = found()
    assert behind.lag == 90
    [note] = behind.notes
    assert "checkpoint 1 is not in all tables" in note
    assert "counted from checkpoint 0" in note
    (stream.checkpoint / "commits" / "1").write_text("v1\n{}")
    assert (found().lag, found().notes) == (60, ()), "the first table had no rows"
    directory = SparkDirectory(str(stream.checkpoint))
    written = {logged_table(first.location, "main"): 1, logged_table(other.location, "main"): 1}
    content = table_log_to_bytes(JOB, directory._digest_of(1) or "", written)
    directory.replace(table_log_path(1), content)
    assert found().lag == 90, "the first table had rows, and does not have them"


def test_a_topic_that_was_created_again_is_a_problem(stream: Stream) -> None:
    (stream.checkpoint / "offsets").mkdir()
    log = SourceOffsets({("orders", 0): 10}, topic_ids={"orders": "old"}).to_text()
    (stream.checkpoint / "offsets" / "0").write_text(f"v1\n{{}}\n{log}\n")
    stream.commit(0, {("orders", 0): 10, ("orders", 1): 50})
    stream.cluster.ids = {"orders": "old"}
    assert stream.status().problems == ()
    stream.cluster.ids = {"orders": "new"}
    [problem] = stream.status().problems
    assert "orders was deleted and created again (its id was old, and is new)" in problem


def test_a_table_that_was_set_aside(stream: Stream) -> None:
    stream.commit(5, {("orders", 0): 60, ("orders", 1): 50})
    error = SchemaMismatchError("no column x")
    entry = quarantined(3, {("orders", 0): 40, ("orders", 1): 50}, ["orders"], error, 0)
    (stream.checkpoint / "streamlake").mkdir()
    (stream.checkpoint / "streamlake" / "quarantine.json").write_bytes(
        quarantine_to_bytes({"lake.orders": entry})
    )
    [problem] = stream.status().problems
    assert "lake.orders has been in quarantine since checkpoint 3 and lacks 20 offsets" in problem
    assert "no column x" in problem


def test_many_tables(stream: Stream, tmp_path: Path) -> None:
    """A table for each topic, of those that the broker has and of those that were read before it fell silent."""
    stream.cluster.logs = {("orders", 0): (0, 100), ("returns", 0): (0, 7)}
    template = f"'{tmp_path}/{{topic}}'"
    text = PIPELINE.format(name="p", table=template, checkpoint=stream.checkpoint)
    pipeline = parse_pipeline(text.replace("topics: orders", "topics: [orders, returns]"), "p.yaml", {})
    stream.table = make_table(tmp_path / "orders", "id long")
    stream.commit(0, {("orders", 0): 100, ("returns", 0): 3}, pipeline="p")
    with status_of(pipeline) as reader:
        found = reader.read()
    assert [(Path(each.table).name, each.exists) for each in found.tables] == [
        ("orders", True),
        ("returns", False),
    ]
    assert found.lag == 4

    def silent() -> None:
        raise SourceError("Kafka at b:1 cannot be asked")

    stream.cluster.topics = silent  # type: ignore[method-assign, assignment]
    (stream.checkpoint / "offsets").mkdir()
    log = SourceOffsets({("orders", 0): 1}).to_text()
    (stream.checkpoint / "offsets" / "0").write_text(f"v1\n{{}}\n{log}\n")
    with status_of(pipeline) as reader:
        assert [Path(each.table).name for each in reader.read().tables] == ["orders"]


def test_tables_that_rows_name(stream: Stream, tmp_path: Path) -> None:
    """Those that the query has noted in its directory."""
    template = f"'{tmp_path}/e_{{row.c}}'"
    pipeline = parse_pipeline(
        PIPELINE.format(name="p", table=template, checkpoint=stream.checkpoint), "p", {}
    )
    with status_of(pipeline) as reader:
        assert reader.read().tables == ()
    (stream.checkpoint / "streamlake").mkdir(exist_ok=True)
    named = {f"{tmp_path}/e_{part}": f"{tmp_path}/e_{{row.c}}" for part in ("de", "fr")}
    (stream.checkpoint / TABLES_PATH).write_bytes(tables_to_bytes(named))
    stream.table = make_table(tmp_path / "e_de", "id long")
    stream.commit(0, {("orders", 0): 100}, pipeline="p")
    with status_of(pipeline) as reader:
        found = reader.read().tables
    assert [(Path(each.table).name, each.exists) for each in found] == [("e_de", True), ("e_fr", False)]
    (stream.checkpoint / TABLES_PATH).write_text('{"tables": ')
    with status_of(pipeline) as reader, pytest.raises(DataInvalidError, match="names the tables that rows"):
        reader.read()


def call(*arguments: str) -> int:
    with pytest.raises(SystemExit) as ended:
        cli.main(["status", *arguments])
    assert isinstance(ended.value.code, int)
    return ended.value.code


class TestCommand:
    def test_text(self, stream: Stream, capsys: pytest.CaptureFixture[str]) -> None:
        stream.commit(12, {("orders", 0): 60, ("orders", 1): 50})
        stream.now_ms += 200_000
        assert call(str(stream.file)) == 0
        text = capsys.readouterr().out
        assert "40 offsets" in text
        assert stream.table.location in text
        assert "3 min 20 s" in text
        assert "orders-0" in text

    def test_json(self, stream: Stream, capsys: pytest.CaptureFixture[str]) -> None:
        stream.commit(12, {("orders", 0): 60, ("orders", 1): 50})
        assert call(str(stream.file), "--json") == 0
        content = json.loads(capsys.readouterr().out)
        assert (content["name"], content["lag"], content["problems"]) == ("orders", 40, [])
        assert content["partitions"][0] == {
            "topic": "orders",
            "partition": 0,
            "committed": 60,
            "end": 100,
            "lag": 40,
        }
        [table] = content["tables"]
        assert table["checkpoint_id"] == 12
        assert table["committed_at"].startswith("2023-11-14T22:13:20")

    def test_by_table(self, stream: Stream, capsys: pytest.CaptureFixture[str]) -> None:
        location = stream.table.location
        assert call(location, "--bootstrap-servers", "b:1") == 1
        assert "name them with --topic" in capsys.readouterr().err
        stream.commit(0, {("orders", 0): 60, ("orders", 1): 50})
        assert call(location, "--bootstrap-servers", "b:1", "--json") == 0
        assert json.loads(capsys.readouterr().out)["lag"] == 40
        assert call(location, "--json") == 0
        content = json.loads(capsys.readouterr().out)
        assert (content["lag"], content["tables"][0]["checkpoint_id"]) == (None, 0)
        assert content["partitions"][0]["committed"] == 60

    def test_options_of_a_table_beside_a_pipeline_file(
        self, stream: Stream, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert call(str(stream.file), "--topic", "x") == 1
        assert "names everything itself" in capsys.readouterr().err

    def test_watch(
        self, stream: Stream, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        slept: list[float] = []

        def sleep(seconds: float) -> None:
            slept.append(seconds)
            stream.commit(len(slept), {("orders", 0): 10 * len(slept)})
            if len(slept) == 3:
                raise KeyboardInterrupt

        monkeypatch.setattr(clock, "sleep", sleep)
        assert call(str(stream.file), "--watch", "--interval", "0.5", "--json") == 0
        lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
        assert [each["partitions"][0]["lag"] for each in lines] == [100, 90, 80]
        assert slept == [0.5] * 3


def test_many_partitions_show_the_furthest_behind(stream: Stream, capsys: pytest.CaptureFixture[str]) -> None:
    stream.cluster.logs = {("orders", part): (0, part) for part in range(100)}
    assert call(str(stream.file)) == 0
    text = capsys.readouterr().out
    assert "68 more; --json lists all" in text
    assert "orders-99" in text
    assert "orders-67 " not in text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(None, ""), (1.24, "1.2 s"), (200, "3 min 20 s"), (18_125, "5 h 2 min"), (183_700, "2 d 3 h")],
)
def test_durations(seconds: float | None, text: str) -> None:
    assert human_duration(seconds) == text


def test_no_spark_is_started_for_it() -> None:
    import subprocess
    import sys

    code = "import sys; from streamlake.cli.commands import status; print('pyspark' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False"]


def test_a_replay_of_rejects_is_not_the_stream(stream: Stream) -> None:
    stream.commit(4, {("orders", 0): 60})
    operation = AppendFiles(stream.table)
    replay = CheckpointIdentity("orders.replay", "replay", 9, (), ("replay 1",))
    operation.set_summary(marker_summary(replay))
    operation.commit()
    with status_of_table(stream.table.location) as reader:
        [table] = reader.read().tables
    assert (table.pipeline, table.checkpoint_id) == ("orders", 4)


def test_status_of_a_table_without_a_broker(stream: Stream) -> None:
    with status_of_table(stream.table.location) as reader:
        assert reader.read().partitions == ()
