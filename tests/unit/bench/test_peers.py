"""What the comparison with the peers is made of, without peers: processes measured from outside, figures of results."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from tests.bench.peers import spark_run
from tests.bench.peers.comparison import Load, Runs
from tests.bench.peers.figures import figures_of
from tests.bench.peers.measured import RunFailedError, measured
from tests.bench.peers.micro_batches import figures
from tests.bench.peers.our_run import messages_of, totals
from tests.helpers.broker import KafkaBroker

CHILD = "held = bytearray(60 << 20); import time; time.sleep(0.5)"
PARENT = f"""
import subprocess, sys
held = bytearray(60 << 20)
subprocess.run([sys.executable, "-c", {CHILD!r}], start_new_session=False)
print("not the result")
print('{{"rows": 3}}')
"""


def test_a_command_is_measured_with_the_processes_below_it(tmp_path: Path) -> None:
    found = measured([sys.executable, "-c", PARENT], tmp_path / "run", {}, 20)
    assert found["rows"] == 3
    assert found["peak_mb"] >= 120
    assert found["peak_parts_mb"].keys() == {"python"}
    assert 0.5 <= found["seconds"] < 20


def test_a_command_that_fails_or_takes_too_long_says_so(tmp_path: Path) -> None:
    with pytest.raises(RunFailedError, match=r"ended with 3\n(.|\n)*gone wrong"):
        measured([sys.executable, "-c", "print('gone wrong'); exit(3)"], tmp_path / "failing", {}, 20)
    with pytest.raises(RunFailedError, match=r"ran over 0\.2 s"):
        measured([sys.executable, "-c", "import time; time.sleep(30)"], tmp_path / "slow", {}, 0.2)


def test_figures_are_medians_and_the_steady_rate_is_that_of_what_the_whole_has_more(tmp_path: Path) -> None:
    runs = Runs(tmp_path / "runs.json")
    for number, (ours, peers) in enumerate([(4.0, 8.0), (5.0, 9.0), (90.0, 10.0)]):
        for engine, whole in (("streamlake", ours), ("flink", peers)):
            for messages, seconds in ((1000, whole), (500, 3.0)):
                memory = {"peak_mb": 100 + number, "peak_share_mb": 80}
                runs.put({"seconds": seconds, **memory}, "append", engine, messages, number)
    found, raw = figures_of(Runs(tmp_path / "runs.json"), Load(messages=1000), rounds=3)
    by_name = {figure.name.removeprefix("Kafka JSON to append, "): figure for figure in found}
    whole, steady = by_name["whole run, beside flink"], by_name["steady, beside flink"]
    assert (whole.ours, whole.peer, whole.goal) == (200, 111.11, 1.0)
    assert (steady.ours, steady.peer, steady.is_met) == (250, 83.33, True)
    assert by_name["peak memory, beside flink"].ours == 101
    assert len(raw["kafka_peers"]["append/flink/whole"]) == 3


def test_the_first_micro_batch_is_no_part_of_the_steady_rate(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    home = tmp_path / "checkpoint"
    for log in ("offsets", "streamlake/offsets"):
        (home / log).mkdir(parents=True)
    (home / "metadata").write_text('{"id": "job"}')
    for number, ends in enumerate(({"0": 10, "1": 20}, {"0": 50, "1": 80})):
        tick = json.dumps({"offset": number + 1, "timestamp": 0})
        (home / "offsets" / str(number)).write_text(f"v1\n{{}}\n{tick}")
        entry = json.dumps({"offsets": {"t": ends}})
        (home / "streamlake" / "offsets" / str(number)).write_text(f"v1\n{entry}\n")
    durations = [{"triggerExecution": 4000, "addBatch": 3000}, {"triggerExecution": 500, "addBatch": 400}]
    reports = [{"timestamp": "", "durationMs": spent} for spent in durations]
    sizes = [messages_of(number) for number in range(2)]
    assert sizes == [30, 100]
    found = figures(reports, sizes)
    assert found["steady_rate"] == 200
    assert found["phases_ms"] == {"triggerExecution": 500, "addBatch": 400}


def test_a_broker_in_the_home_of_a_former_one_has_its_ports(tmp_path: Path) -> None:
    (tmp_path / "server.properties").write_text(
        "controller.quorum.voters=1@127.0.0.1:19094\nlisteners=PLAINTEXT://127.0.0.1:19093,CONTROLLER://127.0.0.1:19094\n"
    )
    assert KafkaBroker(tmp_path).bootstrap_servers == "127.0.0.1:19093"


def test_the_runs_of_spark_find_what_they_share() -> None:
    assert spark_run.totals is totals
