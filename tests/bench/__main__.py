"""`python -m tests.bench [WHICH ...]`: streamlake beside its peers, alternating in one run.

Each engine runs in a process of its own, in turn, `--repeat` times; figures are medians. Peers and broker are
fetched as the tests fetch them. Prints every figure with its ratio and goal, and writes report.json and report.png.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from tests.bench.data import events, write_files
from tests.bench.day import MODES, bench_day
from tests.bench.latency import bench_latency
from tests.bench.peers.comparison import JOBS, Load, compare
from tests.bench.peers.engines import ENGINES as PEERS
from tests.bench.peers.engines import Pace
from tests.bench.peers.figures import figures_of
from tests.bench.recovery import bench_recovery
from tests.bench.report import Figure, print_table, write_report
from tests.bench.table_to_table import bench_table_to_table
from tests.bench.upsert import ENGINES, Sizes, bench_upsert
from tests.helpers.broker import KafkaBroker
from tests.helpers.spark import ROOT, spark_environment

HERE = Path(__file__).parent


def run(script: str, *arguments: object, timeout_seconds: int = 900) -> dict[str, Any]:
    """One script in a process of its own; its last line is the result."""
    command = [sys.executable, str(HERE / script), *map(str, arguments)]
    done = subprocess.run(
        command,
        env={**os.environ, **spark_environment()},
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=timeout_seconds,
    )
    if done.returncode != 0:
        raise SystemExit(f"{script} {arguments[0]} failed:\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}")
    result: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    print(f"  {script} {arguments[0]}: {json.dumps(result)[:300]}", flush=True)
    return result


def median(runs: list[dict[str, Any]], key: str) -> float:
    return statistics.median(float(one[key]) for one in runs)


def bench_append(work: Path, repeat: int, rows: int) -> tuple[list[Figure], dict[str, Any]]:
    source = work / "input"
    write_files(source, files=5, rows_per_file=rows // 5)
    runs: dict[str, list[dict[str, Any]]] = {"streamlake": [], "iceberg": []}
    for number in range(repeat):
        for engine, results in runs.items():
            results.append(run("append_run.py", engine, source, work / f"{engine}-{number}"))
    ours, peer = runs["streamlake"], runs["iceberg"]
    name = "Iceberg's Spark sink"
    steady = "steady_rows_per_second"
    return [
        Figure("append, steady", "rows/s", median(ours, steady), median(peer, steady), name, "higher", 1.25),
        Figure(
            "append, whole run",
            "s",
            median(ours, "whole_run_seconds"),
            median(peer, "whole_run_seconds"),
            name,
            "lower",
            1.0,
        ),
        Figure(
            "append, file size", "bytes", median(ours, "bytes"), median(peer, "bytes"), name, "lower", 1.05
        ),
    ], {"append": runs}


def bench_guards(work: Path, repeat: int, rows: int) -> tuple[list[Figure], dict[str, Any]]:
    """Checkpoints as large as those of the append benchmark, with and without guards in turn, in one process."""
    source, per_checkpoint = work / "guards-input", rows // 20
    write_files(source, files=6, rows_per_file=per_checkpoint)
    result = run("guards_run.py", source, work / "guards", 1 + 3 * repeat)
    guarded, unguarded, shares = (
        statistics.median(result[name]) for name in ("guarded", "unguarded", "shares")
    )
    figures = [
        Figure(
            "append with all guards, median checkpoint",
            "rows/s",
            round(per_checkpoint / guarded),
            round(per_checkpoint / unguarded),
            "without guards",
            "higher",
            0.97,
        ),
        Figure(
            "share of a checkpoint that its guards take",
            "%",
            round(100 * shares, 2),
            None,
            "goal",
            "lower",
            3,
        ),
    ]
    return figures, {"guards": result}


def bench_kafka(work: Path, repeat: int, rows: int) -> tuple[list[Figure], dict[str, Any]]:
    broker = KafkaBroker(work / "broker")
    (work / "broker").mkdir(parents=True)
    broker.start()
    try:
        fill_topic(broker, "bench", rows)
        runs = [
            run("kafka_run.py", broker.bootstrap_servers, "bench", work / f"kafka-{number}", rows // 5)
            for number in range(repeat)
        ]
    finally:
        broker.stop()
    rate = median(runs, "steady_messages_per_second")
    return [Figure("Kafka direct, steady", "messages/s", rate, None, "goal", "higher", 150_000)], {
        "kafka": runs
    }


def bench_kafka_peers(
    work: Path, repeat: int, load: Load, only: list[str]
) -> tuple[list[Figure], dict[str, Any]]:
    """`only` names jobs and engines, or none of either for all of them."""
    unknown = [each for each in only if each not in JOBS and each not in PEERS]
    if unknown:
        raise SystemExit(
            f"'{unknown[0]}' is neither a job ({', '.join(JOBS)}) nor an engine ({', '.join(PEERS)})"
        )
    jobs = [each for each in only if each in JOBS] or list(JOBS)
    runs = compare(work, load, repeat, jobs, [each for each in only if each in PEERS])
    return figures_of(runs, load, repeat)


def fill_topic(broker: KafkaBroker, topic: str, rows: int) -> None:
    """`rows` JSON events, lz4, in two partitions."""
    from kafka import KafkaProducer

    broker.create_topic(topic, partitions=2)
    producer = KafkaProducer(
        bootstrap_servers=broker.bootstrap_servers,
        compression_type="lz4",
        batch_size=1 << 18,
        linger_ms=50,
    )
    for start in range(0, rows, 100_000):
        table = events(start, min(100_000, rows - start))
        for number, row in enumerate(table.to_pylist()):
            value = json.dumps({**row, "ts": row["ts"].isoformat()}).encode()
            producer.send(topic, value, partition=number % 2)
    producer.flush()
    producer.close()


def bench_commit(work: Path, repeat: int, snapshots: int) -> tuple[list[Figure], dict[str, Any]]:
    """The figures of the run with the median growth; the times of one run belong together."""
    runs = [run("commit_run.py", work / f"commit-{number}", snapshots) for number in range(repeat)]
    runs.sort(key=lambda one: float(one["alone_last_50"] / one["alone_20_to_70"]))
    result = runs[len(runs) // 2]
    early, late = result["at_20"], result[f"at_{snapshots}"]
    java = "Iceberg Java"
    return [
        Figure(
            f"commit, {snapshots} snapshots",
            "ms",
            result["alone_last_50"],
            result["alone_20_to_70"],
            "at 20 snapshots",
            "lower",
            1.5,
        ),
        Figure("commit, 20 snapshots", "ms", early["streamlake"], early["java"], java, "lower", 1.0),
        Figure(
            f"commit, {snapshots} snapshots, beside Java",
            "ms",
            late["streamlake"],
            late["java"],
            java,
            "lower",
            1.0,
        ),
    ], {"commit": runs}


def bench_delete_scan(work: Path, repeat: int) -> tuple[list[Figure], dict[str, Any]]:
    """One table, which both engines scan in turn; the run's figures are medians of its rounds."""
    result = run("delete_scan_run.py", work / "delete-scan", repeat)
    name, ours, peer = "Iceberg's Spark runtime", result["our_seconds"], result["spark_seconds"]
    figure = Figure("scan over equality deletes", "s", ours, peer, name, "lower", 0.2)
    return [figure], {"delete_scan": result}


def bench_compact(work: Path, repeat: int, rows: int, files: int) -> tuple[list[Figure], dict[str, Any]]:
    """Small files with a deletion vector each, compacted by both in turn; medians of the rounds."""
    figures, runs = [], {}
    for strategy, goal in (("binpack", 1 / 1.5), ("sort", 1.0)):
        arguments = (strategy, work / f"compact-{strategy}", repeat, rows, files)
        result = run("compact_run.py", *arguments, timeout_seconds=3600)
        name, ours, peer = "Iceberg's procedure in Spark", result["our_seconds"], result["spark_seconds"]
        figures.append(Figure(f"compaction, {strategy}", "s", ours, peer, name, "lower", goal))
        peak = result["peak_megabytes"]
        figures.append(
            Figure(f"compaction, {strategy}, peak memory", "MB", peak, None, "goal", "lower", 1024)
        )
        runs[f"compact_{strategy}"] = result
    return figures, runs


def bench_table_changes(work: Path, repeat: int) -> tuple[list[Figure], dict[str, Any]]:
    """One table, whose changes are read by a stream; the run's figures are medians of its rounds."""
    result = run("table_changes_run.py", work / "table-changes", repeat, timeout_seconds=3_600)
    speed = Figure(
        "changes of an upserted table",
        "changes/s",
        result["changes_per_second"],
        None,
        "goal",
        "higher",
        300_000,
    )
    cpu = Figure(
        "changes of an upserted table, per CPU second",
        "changes/s",
        result["changes_per_cpu_second"],
        None,
        "",
        "higher",
        None,
    )
    memory = Figure(
        "changes of an upserted table, peak memory", "MB", result["peak_megabytes"], None, "", "lower", None
    )
    return [speed, cpu, memory], {"table_changes": result}


def bench_demo(work: Path) -> tuple[list[Figure], dict[str, Any]]:
    started = time.time()
    command = [
        str(Path(sys.executable).with_name("streamlake")),
        "demo",
        "--json",
        "--warehouse",
        str(work / "demo"),
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=True)
    seconds = time.time() - started
    summary = json.loads(done.stdout)
    return [Figure("streamlake demo", "s", seconds, None, "goal", "lower", 60)], {"demo": summary}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "which",
        nargs="*",
        default=["append", "upsert", "delete-scan", "kafka", "commit", "guards", "recovery", "demo"],
    )
    parser.add_argument(
        "--rows",
        type=int,
        default=5_000_000,
        help="rows of append and compact, and of table-to-table in 50 snapshots",
    )
    parser.add_argument(
        "--rows-at-once", type=int, default=20_000_000, help="rows of table-to-table in one snapshot"
    )
    parser.add_argument(
        "--messages", type=int, help="of the Kafka benchmarks (kafka: 2,000,000; kafka-peers: 4,000,000)"
    )
    parser.add_argument("--keys", type=int, default=1_000_000, help="keys of the messages of kafka-peers")
    parser.add_argument(
        "--batch", type=int, default=1_000_000, help="messages per micro-batch of kafka-peers"
    )
    parser.add_argument(
        "--flink-checkpoint-ms", type=int, default=2_000, help="Flink's interval in kafka-peers"
    )
    parser.add_argument(
        "--only", default="", help="jobs and engines of kafka-peers, such as append,upsert,streamlake,flink"
    )
    parser.add_argument("--files", type=int, default=500, help="files that --rows are in, for compact")
    parser.add_argument("--snapshots", type=int, default=2_000, help="snapshots of the commit benchmark")
    parser.add_argument(
        "--engines", default=",".join(ENGINES), help="engines of the upsert benchmark, such as merge,flink"
    )
    parser.add_argument("--scale", type=float, default=1, help="of the upsert benchmark's rows and keys")
    parser.add_argument(
        "--latency-seconds", type=float, default=60, help="how long the latency benchmark's producer sends"
    )
    parser.add_argument("--latency-rate", type=int, default=5_000, help="... how many messages per second")
    parser.add_argument("--latency-modes", default="append", help="... into which tables: append,upsert")
    parser.add_argument("--checkpoints", type=int, default=5_000, help="checkpoints of the day")
    parser.add_argument(
        "--day-modes", default=",".join(MODES), help="of the day: v3-position, v2-position, v2-equality"
    )
    parser.add_argument("--repeat", "--rounds", type=int, default=3, help="runs of each engine")
    parser.add_argument(
        "--out", type=Path, default=HERE / "report", help="where report.json and report.png go"
    )
    parser.add_argument("--work", type=Path, help="scratch folder that is kept (default: a temporary one)")
    options = parser.parse_args()
    figures: list[Figure] = []
    runs: dict[str, Any] = {}
    with tempfile.TemporaryDirectory(prefix="streamlake-bench-") as temporary:
        work = options.work or Path(temporary)
        benches = {
            "append": lambda: bench_append(work, options.repeat, options.rows),
            "upsert": lambda: bench_upsert(
                work / "upsert",
                options.repeat,
                run,
                options.engines.split(","),
                Sizes().scaled(options.scale),
            ),
            "delete-scan": lambda: bench_delete_scan(work, options.repeat),
            "compact": lambda: bench_compact(work, options.repeat, options.rows, options.files),
            "table-changes": lambda: bench_table_changes(work, options.repeat),
            "kafka": lambda: bench_kafka(work, options.repeat, options.messages or 2_000_000),
            "kafka-peers": lambda: bench_kafka_peers(
                work / "kafka-peers",
                options.repeat,
                Load(
                    options.messages or 4_000_000,
                    options.keys,
                    Pace(options.batch, options.flink_checkpoint_ms),
                ),
                [each for each in options.only.split(",") if each],
            ),
            "latency": lambda: bench_latency(
                work,
                run,
                seconds=options.latency_seconds,
                rate=options.latency_rate,
                modes=options.latency_modes.split(","),
            ),
            "table-to-table": lambda: bench_table_to_table(
                work / "table-to-table", options.repeat, run, options.rows, options.rows_at_once
            ),
            "guards": lambda: bench_guards(work, options.repeat, options.rows),
            "recovery": lambda: bench_recovery(work, options.repeat, options.snapshots, run),
            "commit": lambda: bench_commit(work, options.repeat, options.snapshots),
            "demo": lambda: bench_demo(work),
            "day": lambda: bench_day(
                work, run, options.checkpoints, options.day_modes.split(","), options.out
            ),
        }
        for which in options.which:
            if which not in benches:
                parser.error(f"'{which}' is not a benchmark; there are {', '.join(benches)}")
            print(f"{which}:", flush=True)
            more, raw = benches[which]()
            figures += more
            runs |= raw
            if more:
                write_report(options.out, more, raw)
    print_table(figures)
    print(f"\nreport: {options.out / 'report.json'}, {options.out / 'report.png'}")


if __name__ == "__main__":
    main()
