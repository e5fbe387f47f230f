"""`streamlake run`: pipeline files from end to end."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from streamlake import load_table
from streamlake.cli.commands.run import receipt_line
from streamlake.errors import InvalidOptionError, SchemaMismatchError
from streamlake.operate.check.check_points import Verdict
from streamlake.operate.check.pipeline_check import check_pipeline
from streamlake.operate.status.driver_status import RunState
from streamlake.operate.status.status import status_of
from streamlake.pipeline.definition.pipeline_file import load_pipeline, parse_pipeline
from streamlake.pipeline.definition.running import PipelineRun, StopRequest, run_pipeline
from tests.helpers.command_line import command, environment, streamlake, without_jvm_notice
from tests.helpers.processes import free_ports, kill_group, wait_until
from tests.helpers.readers import DuckDbReader

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.helpers.broker import KafkaBroker

FILES = """
name: readings
source:
  files: {{path: {home}/in, format: json, schema: "id long, at string, amount double", max-files-per-trigger: 1}}
select: ["id", "to_timestamp(at) AS ts", "amount"]
where: amount >= 0
sink:
  table: {home}/table
  create: true
  partition-by: ["day(ts)"]
checkpoint: {home}/checkpoint
trigger: available-now
"""


def without_times(out: str) -> list[str]:
    """The lines of a run without their times, which each of them has."""
    lines = [re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d (.*)", line) for line in out.splitlines()]
    assert None not in lines, out
    return [line[1] for line in lines if line is not None]


def land(home: Path, name: str, ids: range) -> None:
    """A JSON file of readings; every fifth has a negative amount."""
    (home / "in").mkdir(exist_ok=True)
    lines = [
        json.dumps(
            {"id": at, "at": f"2024-01-0{1 + at % 3}T00:00:00Z", "amount": -1.0 if at % 5 == 0 else at}
        )
        for at in ids
    ]
    (home / "in" / f".{name}").write_text("\n".join(lines) + "\n")
    (home / "in" / f".{name}").rename(home / "in" / name)


@pytest.mark.spark
def test_files_to_table(tmp_path: Path, duckdb_reader: DuckDbReader) -> None:
    land(tmp_path, "a.json", range(100))
    land(tmp_path, "b.json", range(100, 200))
    (tmp_path / "p.yaml").write_text(FILES.format(home=tmp_path))
    done = streamlake("run", "p.yaml", cwd=tmp_path)
    assert (done.returncode, without_jvm_notice(done.stderr)) == (0, [])
    lines = without_times(done.stdout)
    assert lines[0] == f"readings: streaming into {tmp_path}/table, checkpoint in {tmp_path}/checkpoint"
    for number, line in enumerate(lines[1:3]):
        assert re.match(
            rf"checkpoint {number}: committed, 80 rows, \d+ files, .* snapshot \d+, write \d+ ms", line
        )
    assert lines[3].startswith("readings: done; 160 rows in 2 checkpoints")
    assert len(lines) == 4
    relation = duckdb_reader.relation(tmp_path / "table")
    counted = duckdb_reader.sql(f"select count(*), sum(id), count(distinct ts) from {relation}").to_pylist()[
        0
    ]
    assert [int(value) for value in counted.values()] == [160, sum(at for at in range(200) if at % 5), 3]


@pytest.mark.spark
def test_a_bad_record_is_one_line_on_stderr_and_a_run_without_news_is_up_to_date(tmp_path: Path) -> None:
    land(tmp_path, "a.json", range(10))
    (tmp_path / "in" / "b.json").write_text('{"id": "x"\n')
    (tmp_path / "p.yaml").write_text(FILES.format(home=tmp_path))
    refused = streamlake("run", "p.yaml", cwd=tmp_path)
    lines = without_jvm_notice(refused.stderr)
    assert (refused.returncode, len(lines)) == (1, 1), refused.stderr[:3000]
    assert re.match(
        r"error: file:\S+/b\.json holds a record that cannot be read: .* Correct the file, ", lines[0]
    )
    land(tmp_path, "b.json", range(10, 20))
    assert streamlake("run", "p.yaml", cwd=tmp_path).returncode == 0
    idle = streamlake("run", "p.yaml", cwd=tmp_path)
    assert (idle.returncode, without_jvm_notice(idle.stderr)) == (0, [])
    assert (
        without_times(idle.stdout)[-1]
        == "readings: up to date; there is nothing new since the last checkpoint"
    )


@pytest.mark.spark
def test_a_second_run_goes_on(tmp_path: Path, spark: SparkSession) -> None:
    pipeline = parse_pipeline(FILES.format(home=tmp_path), "p.yaml")
    for number in range(3):
        land(tmp_path, f"{number}.json", range(number * 10, number * 10 + 10))
        state = run_pipeline(pipeline, spark)
        assert (state.rows, state.checkpoints) == (8, 1)
    assert run_pipeline(pipeline, spark).checkpoints == 0
    table = load_table(tmp_path / "table")
    assert sorted(table.scan().to_arrow()["id"].to_pylist()) == [at for at in range(30) if at % 5]
    assert {snapshot.summary["streamlake.pipeline"] for snapshot in table.snapshots} == {"readings"}


@pytest.mark.spark
def test_inferred_schema(tmp_path: Path, spark: SparkSession) -> None:
    text = FILES.format(home=tmp_path).replace(', schema: "id long, at string, amount double"', "")
    (tmp_path / "in").mkdir()
    with pytest.raises(InvalidOptionError, match=r"no schema is given and none can be inferred from .*/in: "):
        run_pipeline(parse_pipeline(text, "p.yaml"), spark)
    land(tmp_path, "a.json", range(10))
    assert run_pipeline(parse_pipeline(text, "p.yaml"), spark).rows == 8


@pytest.mark.spark
@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('"id",', '"idd",', "Spark refuses the pipeline: .*idd"),
        ("amount >= 0", "amount >", "Spark refuses the pipeline: "),
        ("day(ts)", "day(tss)", "the column 'tss'"),
    ],
)
def test_mistakes_that_need_spark(
    old: str, new: str, message: str, tmp_path: Path, spark: SparkSession
) -> None:
    land(tmp_path, "a.json", range(10))
    pipeline = parse_pipeline(FILES.format(home=tmp_path).replace(old, new), "p.yaml")
    with pytest.raises(InvalidOptionError, match=message):
        run_pipeline(pipeline, spark)
    assert run_pipeline(parse_pipeline(FILES.format(home=tmp_path), "p.yaml"), spark).rows == 8


@pytest.mark.spark
def test_the_sinks_error_is_the_pipelines(tmp_path: Path, spark: SparkSession) -> None:
    land(tmp_path, "a.json", range(10))
    run_pipeline(parse_pipeline(FILES.format(home=tmp_path), "p.yaml"), spark)
    land(tmp_path, "b.json", range(10))
    other = FILES.format(home=tmp_path).replace('"amount"]', '"amount AS surprise"]')
    with pytest.raises(SchemaMismatchError, match="the column 'surprise' is not in the table"):
        run_pipeline(parse_pipeline(other, "p.yaml"), spark)


def test_mistakes_that_need_no_spark() -> None:
    good = parse_pipeline(FILES.format(home="/x"), "p.yaml")
    PipelineRun(good)
    for old, new, message in (
        ("table: /x/table", "table: /x/table\n  mode: apend", "mode 'apend' is not known"),
        ("create: true", "create: false", "pass create: true"),
    ):
        with pytest.raises(InvalidOptionError, match=message):
            PipelineRun(parse_pipeline(FILES.format(home="/x").replace(old, new), "p.yaml"))
    kafka = "source: {kafka: {bootstrap-servers: a, topics: t, options: {starting-offset: earliest}}}\n"
    with pytest.raises(InvalidOptionError, match="did you mean 'starting-offsets'"):
        PipelineRun(parse_pipeline(kafka + "sink: {table: /x}\ncheckpoint: /c", "p.yaml"))


RATE = """
name: ticks
source:
  rate: {{rows-per-second: 200}}
sink: {{table: {home}/table, create: true}}
checkpoint: {home}/checkpoint
trigger: {{processing-time: 500 milliseconds}}
spark:
  config: {{spark.sql.codegen.wholeStage: "false", spark.sql.codegen.factoryMode: NO_CODEGEN}}
"""


@pytest.mark.spark
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_stops_cleanly(number: signal.Signals, tmp_path: Path) -> None:
    """Sent to the process alone, then to its whole group, as a container's stop, systemd and a terminal do."""
    (tmp_path / "p.yaml").write_text(RATE.format(home=tmp_path))
    for run in range(2):
        out = _run_until_signal(tmp_path, run, number)
        with status_of(load_pipeline(tmp_path / "p.yaml")) as status:
            driver = status.read().driver
        assert driver is not None
        assert (driver.state, driver.error) == (RunState.STOPPED, None)
        assert without_times(out)[-1].startswith("ticks: stopped; ")
    values = sorted(load_table(tmp_path / "table").scan(columns=["value"]).to_arrow()["value"].to_pylist())
    assert values == list(range(len(values))), "every row once, over both runs"
    assert len(load_table(tmp_path / "table").snapshots) >= 4


def _run_until_signal(home: Path, run: int, number: signal.Signals) -> str:
    """Start the pipeline, wait for two more snapshots, send the signal; returns stdout."""
    out = home / f"out-{run}"
    with open(out, "wb") as stdout, open(home / f"err-{run}", "wb") as stderr:
        process = subprocess.Popen(
            command("run", "p.yaml"),
            cwd=home,
            env=environment(),
            stdin=subprocess.DEVNULL,
            stdout=stdout,
            stderr=stderr,
            start_new_session=True,
        )
        try:
            wait_until(
                lambda: process.poll() is not None or out.read_text().count(": committed") >= 2,
                120,
                "snapshots",
            )
            if run:
                os.killpg(process.pid, number)
            else:
                process.send_signal(number)
            started = time.monotonic()
            assert process.wait(60) == 0, (home / f"err-{run}").read_text()
            assert time.monotonic() - started < 45
        finally:
            kill_group(process)
    # Spark logs what it meets when it kills the task of a checkpoint under way; nothing else may be there.
    for sign in ("error:", "Traceback", "StackOverflowError", "Exception in thread"):
        assert sign not in (home / f"err-{run}").read_text()
    return out.read_text()


@pytest.mark.spark
def test_stop_from_a_program(tmp_path: Path, spark: SparkSession) -> None:
    run = PipelineRun(parse_pipeline(RATE.format(home=tmp_path), "p.yaml"))
    stop = StopRequest()
    seen: list[Any] = []

    def on_tick(receipts: list[Any], state: Any) -> None:
        seen.extend(receipts)
        if state.rows:
            stop.set()

    state = run.watch(run.start(spark), stop, on_tick)
    assert state.rows == sum(receipt.rows for receipt in seen) > 0
    assert load_table(tmp_path / "table").scan().count() == state.rows


KAFKA = """
name: orders
source:
  kafka:
    bootstrap-servers: ${{BROKER}}
    topics: {topic}
    schema: id long not null, name string
    options: {{starting-offsets: earliest, max-offsets-per-trigger: 400}}
sink: {{table: {home}/table, create: true, partition-by: ["bucket(2, id)"]}}
checkpoint: {home}/checkpoint
trigger: available-now
"""


@pytest.mark.kafka
def test_kafka_to_table(
    tmp_path: Path, spark: SparkSession, kafka_broker: KafkaBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = "pipeline-file-orders"
    kafka_broker.create_topic(topic, partitions=2)
    kafka_broker.produce(
        topic, [json.dumps({"id": at, "name": f"größe {at}"}).encode() for at in range(1000)]
    )
    text = KAFKA.format(home=tmp_path, topic=topic)
    monkeypatch.setenv("BROKER", kafka_broker.bootstrap_servers)
    (tmp_path / "p.yaml").write_text(text)
    checked = check_pipeline(str(tmp_path / "p.yaml"), PipelineRun)
    assert checked.is_right, checked.found
    pipeline = load_pipeline(tmp_path / "p.yaml")
    with status_of(pipeline) as status:
        assert status.read().lag == 1000
        state = run_pipeline(pipeline, spark)
        assert (status.read().lag, status.read().problems) == (0, ())
        driver = status.read().driver
    assert (state.rows, state.offsets) == (1000, (1000, 1000))
    assert state.checkpoints >= 3
    assert driver is not None
    assert driver.state is RunState.ENDED
    table: pa.Table = load_table(tmp_path / "table").scan().to_arrow().sort_by("id")
    assert table["id"].to_pylist() == list(range(1000))
    assert table["name"][7].as_py() == "größe 7"
    assert run_pipeline(pipeline, spark).rows == 0


@pytest.mark.kafka
def test_check_against_a_broker(
    tmp_path: Path, kafka_broker: KafkaBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is wrong is told by what it is about; no Spark is started for it."""
    topic = kafka_broker.create_topic()
    kafka_broker.produce(topic, [b'{"id": 1, "name": "a"}', b'{"id": "x"}'])
    path = tmp_path / "p.yaml"

    def errors(topic: str, broker: str) -> dict[str, str]:
        monkeypatch.setenv("BROKER", broker)
        text = KAFKA.format(home=tmp_path, topic=topic)
        path.write_text(text.replace("trigger: 400", "trigger: 400, kafka.bootstrap.timeout.ms: 500"))
        found = check_pipeline(str(path), PipelineRun).found
        return {each.about: each.message for each in found if each.verdict is Verdict.ERROR}

    wrong = errors(topic, kafka_broker.bootstrap_servers)
    assert list(wrong) == ["records"]
    assert f"{topic}" in wrong["records"]
    assert "offset 1" in wrong["records"]
    assert list(errors("nowhere", kafka_broker.bootstrap_servers)) == ["kafka"]
    assert "cannot be asked" in errors(topic, f"127.0.0.1:{free_ports(1)[0]}")["kafka"]
    assert list(tmp_path.iterdir()) == [path]


CHANGES = """
name: accounts
source:
  files: {{path: {home}/in, format: json, schema: "kind string, id long, at long, balance double", max-files-per-trigger: 1}}
select: [kind, id, at, balance]
sink:
  table: {home}/table
  create: true
  mode: upsert
  key: id
  sequence-by: [at]
  row-kind: kind
  delete-mode: position
checkpoint: {home}/checkpoint
trigger: available-now
"""


@pytest.mark.spark
def test_changes_to_table(tmp_path: Path, spark: SparkSession) -> None:
    def land_changes(name: str, *changes: tuple[str, int, int, float | None]) -> None:
        (tmp_path / "in").mkdir(exist_ok=True)
        names = ("kind", "id", "at", "balance")
        lines = [json.dumps(dict(zip(names, change, strict=True))) for change in changes]
        (tmp_path / "in" / f".{name}").write_text("\n".join(lines) + "\n")
        (tmp_path / "in" / f".{name}").rename(tmp_path / "in" / name)
        time.sleep(0.01)

    land_changes("a.json", *(("c", at, 1, float(at)) for at in range(10)))
    land_changes("b.json", ("u", 3, 5, 33.0), ("d", 4, 5, None), ("u", 5, 0, 0.5), ("c", 10, 1, 10.0))
    pipeline = parse_pipeline(CHANGES.format(home=tmp_path), "p.yaml")
    seen: list[Any] = []
    state = run_pipeline(pipeline, spark, on_tick=lambda receipts, state: seen.extend(receipts))
    assert (state.rows, state.checkpoints) == (12, 2)
    assert "checkpoint 1: committed, 2 rows (1 update, 1 delete, 1 late), " in receipt_line(seen[1])
    table = load_table(tmp_path / "table")
    assert table.format_version == 3
    assert list(table.schema.column_names) == ["id", "at", "balance"]
    rows = {row["id"]: row["balance"] for row in table.scan().to_arrow().to_pylist()}
    assert rows == {**{at: float(at) for at in range(11) if at != 4}, 3: 33.0}
    assert run_pipeline(pipeline, spark).checkpoints == 0


def test_mistakes_in_upserts_need_no_spark() -> None:
    PipelineRun(parse_pipeline(CHANGES.format(home="/x"), "p.yaml"))
    for old, new, message in (
        ("mode: upsert", "mode: upsrt", "mode 'upsrt' is not known; .* Did you mean 'upsert'"),
        (
            "delete-mode: position",
            "delete-mode: positions",
            "'positions' is not known; .* Did you mean 'position'",
        ),
        (
            "sequence-by:",
            "sequenc-by:",
            "p.yaml: sink: unknown option 'sequenc-by'; did you mean 'sequence-by'",
        ),
        (
            "mode: upsert",
            "mode: append",
            "key, sequence-by, row-kind, delete-mode belongs to the modes upsert",
        ),
        (
            "mode: upsert",
            "mode: changelog\n  row-kind: null",
            "'changelog' needs to know which changes delete",
        ),
    ):
        text = CHANGES.format(home="/x")
        if "row-kind" in new:
            text = text.replace("  row-kind: kind\n", "")
        text = text.replace(f"  {old}", f"  {new}")
        with pytest.raises(InvalidOptionError, match=message):
            PipelineRun(parse_pipeline(text, "p.yaml"))


@pytest.mark.kafka
def test_changes_of_a_topic(tmp_path: Path, spark: SparkSession, kafka_broker: KafkaBroker) -> None:
    """The row kind's column is in the records and not in the table; at the second start the table tells the schema."""
    topic = "pipeline-file-changes"
    kafka_broker.create_topic(topic, partitions=1)
    text = KAFKA.format(home=tmp_path, topic=topic).replace(
        "create: true,", "create: true, mode: changelog, key: [id], row-kind: op, "
    )
    text = text.replace("schema: id long not null, name string", "schema: op string, id long, name string")
    environment = {"BROKER": kafka_broker.bootstrap_servers}
    for start, given in enumerate((text, text.replace("    schema: op string, id long, name string\n", ""))):
        kinds = ("+U", "-D") if start else ("+I",)
        changes = [
            {"op": kind, "id": at, "name": f"{start}"} for at in range(0, 600, start + 1) for kind in kinds
        ]
        changes += [{"op": "+I", "id": at, "name": "again"} for at in range(0, 300, 2) if start]
        kafka_broker.produce(topic, [json.dumps(change).encode() for change in changes])
        run_pipeline(parse_pipeline(given, "p.yaml", environment), spark)
    rows = {row["id"]: row["name"] for row in load_table(tmp_path / "table").scan().to_arrow().to_pylist()}
    assert rows == {**dict.fromkeys(range(1, 600, 2), "0"), **dict.fromkeys(range(0, 300, 2), "again")}


def test_usage_errors_need_no_spark(tmp_path: Path) -> None:
    (tmp_path / "p.yaml").write_text(FILES.format(home=tmp_path).replace("checkpoint:", "checkpiont:"))
    done = streamlake("run", "p.yaml", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == (
        "error: p.yaml: unknown option 'checkpiont'; did you mean 'checkpoint'? (line 11) "
        "[InvalidOptionError: docs/operating/errors/invalid-option-error.md]\n"
    )
