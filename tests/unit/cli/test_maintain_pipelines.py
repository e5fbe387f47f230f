"""`streamlake maintain PIPELINE.yaml` and `--watch`: every table of a pipeline, one's error beside the others, and a clean end."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from streamlake.catalog.open import open_table
from streamlake.cli.main import main
from streamlake.maintain.background.lease import lease_of, take_lease
from streamlake.pipeline.runs.rejected.rejects_table import require_rejects
from streamlake.pipeline.sinks.discovered_tables import TABLES_PATH, tables_to_bytes
from streamlake.table.table import Table
from tests.helpers.batch_write import append
from tests.helpers.tables import make_table

MANIFESTS = ("--only", "manifests")


def run(*arguments: str) -> int:
    with pytest.raises(SystemExit) as exit_:
        main(["maintain", *arguments])
    return int(exit_.value.code or 0)


def table(location: Path, commits: int = 3) -> Table:
    made = make_table(location, properties={"commit.manifest-merge.enabled": "false"})
    for each in range(commits):
        append(made, pa.table({"id": pa.array([each], pa.int64()), "category": pa.array(["a"])}))
    return made


def manifests(location: str) -> int:
    found = open_table(location)
    return len(found.manifests(found.current_snapshot))


@pytest.fixture
def one(tmp_path: Path) -> Path:
    """A pipeline of one table, with rejects."""
    table(tmp_path / "t")
    require_rejects(str(tmp_path / "t"))
    path = tmp_path / "p.yaml"
    path.write_text(
        f"source: {{rate: {{}}}}\nsink: {{table: {tmp_path / 't'}}}\ncheckpoint: {tmp_path / 'checkpoint'}\n"
    )
    return path


@pytest.fixture
def many(tmp_path: Path) -> Path:
    """A pipeline of many tables, which rows have named."""
    for name in ("a", "b"):
        table(tmp_path / name)
    directory = tmp_path / "checkpoint"
    (directory / "offsets").mkdir(parents=True)
    (directory / "metadata").write_text('{"id":"6f2d6c1e-0000-0000-0000-000000000000"}')
    (directory / TABLES_PATH).parent.mkdir()
    template = f"{tmp_path}/{{row.kind}}"
    names = {str(tmp_path / name): template for name in ("a", "b", "not-yet")}
    (directory / TABLES_PATH).write_bytes(tables_to_bytes(names))
    path = tmp_path / "p.yaml"
    path.write_text(
        "source: {kafka: {bootstrap-servers: 'nowhere:1', topics: t, schema: 'kind string'}}\n"
        f"sink: {{table: '{template}'}}\ncheckpoint: {directory}\n"
    )
    return path


def report(capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def test_all_tables_of_a_pipeline(one: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(str(one), *MANIFESTS, "--json") == 0
    names = [each["table"] for each in report(capsys)["tables"]]
    location = str(one.parent / "t")
    assert len(names) == 2
    assert names[0] == location
    assert "rejects" in names[1]
    assert manifests(location) == 1


def test_tables_that_rows_have_named(many: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(str(many), *MANIFESTS) == 0
    shown = capsys.readouterr().out
    assert shown.count("rewrote 3 of 3 manifests") == 2
    assert "files that a scan opens" in shown
    assert manifests(str(many.parent / "a")) == manifests(str(many.parent / "b")) == 1


def test_an_error_of_one_table_does_not_stop_the_others(
    many: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    broken = open_table(str(many.parent / "a"))
    for manifest in broken.manifests(broken.current_snapshot):
        Path(manifest.manifest_path).unlink()
    assert run(str(many), *MANIFESTS, "--json") == 1
    first, second = report(capsys)["tables"]
    assert "error" in first
    assert second["manifests"]["rewritten"] == 3


def test_a_pipeline_whose_tables_are_not_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "p.yaml"
    path.write_text(
        f"source: {{rate: {{}}}}\nsink: {{table: {tmp_path / 't'}}}\ncheckpoint: {tmp_path / 'c'}\n"
    )
    assert run(str(path)) == 0
    assert "none of its tables is there yet" in capsys.readouterr().out
    assert sorted(tmp_path.iterdir()) == [path]


def test_a_pipeline_file_names_everything_itself(one: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(str(one), "--branch", "b") == 1
    assert "a pipeline file names catalogs and branches itself" in capsys.readouterr().err


def test_watch_repeats_until_it_is_told_to_stop(one: Path, capsys: pytest.CaptureFixture[str]) -> None:
    location = str(one.parent / "t")

    def wait_for_a_round() -> None:
        end = time.monotonic() + 30
        while manifests(location) > 1 and time.monotonic() < end:
            time.sleep(0.05)

    def work() -> None:
        wait_for_a_round()
        for each in (8, 9):
            rows = pa.table({"id": pa.array([each], pa.int64()), "category": ["b"]})
            append(open_table(location), rows)
        wait_for_a_round()
        os.kill(os.getpid(), signal.SIGTERM)

    thread = threading.Thread(target=work)
    thread.start()
    assert run(str(one), *MANIFESTS, "--watch", "--interval", "1", "--json") == 0
    thread.join()
    rounds = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert len(rounds) >= 2
    assert rounds[0]["tables"][0]["manifests"]["rewritten"] == 3
    assert manifests(location) == 1
    lease = lease_of(open_table(location).properties)
    assert lease is not None
    assert lease.holder.startswith("streamlake maintain --watch on ")


def test_watch_leaves_a_table_to_the_stream_that_maintains_it(
    one: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    location = str(one.parent / "t")
    take_lease(open_table(location), "orders", 600)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    watch = subprocess.Popen(
        [sys.executable, "-m", "streamlake", "maintain", str(one), "--watch"],
        stdout=subprocess.PIPE,
        text=True,
        env=environment,
    )
    assert watch.stdout is not None
    assert f"{location}: left to orders until" in watch.stdout.readline()
    watch.terminate()
    assert watch.wait(20) == 0
    watch.stdout.close()
    assert manifests(location) == 3
    # Whoever asks for it once gets it.
    assert run(str(one), *MANIFESTS) == 0
    assert manifests(location) == 1
