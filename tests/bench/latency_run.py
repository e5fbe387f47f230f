"""One run of the latency benchmark: `python latency_run.py SERVERS TOPIC HOME RATE SECONDS MODE`.

A stream without end runs on a trigger as fast as it goes while a producer sends at a steady rate. A record is visible when the
commit of the snapshot that holds its offset has returned, which is a little later than a reader could have seen it; the
clock starts at its Kafka timestamp. All times are of one machine's clock.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from streamlake import IcebergSink, KafkaSource, load_table
from streamlake.commit.offset_summary import committed_offsets
from streamlake.pipeline.spark.session import started_session
from streamlake.source.cluster import KafkaCluster
from streamlake.source.fetcher import fetch_range
from streamlake.source.offsets import OffsetRange, Partition
from tests.bench.data import DDL
from tests.helpers.spark import ROOT, spark_environment

HERE = Path(__file__).parent
WARM_SECONDS = 10.0
"""Left out: the first checkpoints of a process load code."""
FIRST_SECONDS = 1.0
"""Sent before, and waited for, so that the start of Spark is no part of it."""
WINDOWS = 10
_PATIENCE_SECONDS = 60.0


def main() -> None:
    servers, topic, home = sys.argv[1], sys.argv[2], Path(sys.argv[3])
    rate, seconds, mode = int(sys.argv[4]), float(sys.argv[5]), sys.argv[6]
    # As `streamlake run` starts it.
    os.environ.update(spark_environment())
    directories = {"spark.local.dir": "spark-local", "spark.sql.warehouse.dir": "spark-warehouse"}
    config = {name: str(home / directory) for name, directory in directories.items()}
    with started_session("latency", is_lean=True, master="local[2]", config=config) as started:
        started()
        source = KafkaSource(servers, topic, schema=DDL, options={"starting-offsets": "earliest"})
        visible: dict[int, float] = {}
        sink = IcebergSink(
            str(home / "t"),
            create=True,
            mode=mode,
            key=["id"] if mode == "upsert" else (),
            pipeline="latency",
            on_commit=lambda receipt: visible.setdefault(receipt.snapshot_id or 0, time.time()),
        )
        query = sink.start(
            source, checkpoint_location=str(home / "checkpoint"), trigger={"processingTime": "0 seconds"}
        )
        _produce(servers, topic, rate, FIRST_SECONDS)
        begins = _ends(source)
        _until_committed(query, home / "t", begins, visible)
        told = _produce(servers, topic, rate, seconds)
        ends = _ends(source)
        steps = _until_committed(query, home / "t", ends, visible)
        query.stop()
    times = [_latencies(source, part, begins[part], end, steps) for part, end in ends.items()]
    produced, waited = (np.concatenate(parts) for parts in zip(*times, strict=True))
    print(json.dumps({**told, "mode": mode, "rate": rate, **summary(produced, waited, len(steps))}))


def _produce(servers: str, topic: str, rate: int, seconds: float) -> dict[str, Any]:
    """Send for so long, in a process of its own; what it says of it."""
    command = [sys.executable, str(HERE / "latency_producer.py"), servers, topic, str(rate), str(seconds)]
    done = subprocess.run(
        command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True, timeout=seconds * 3 + 120
    )
    return dict(json.loads(done.stdout.strip().splitlines()[-1]))


def _ends(source: KafkaSource) -> dict[Partition, int]:
    with KafkaCluster(source) as cluster:
        return cluster.latest(cluster.topics().partitions)


Step = tuple[float, dict[Partition, int]]
"""When a snapshot was visible, and the next offset of each partition after it."""


def _until_committed(
    query: Any, table: Path, ends: dict[Partition, int], visible: dict[int, float]
) -> list[Step]:
    """The steps of the table once it holds everything, in order."""
    deadline = time.time() + _PATIENCE_SECONDS
    while time.time() < deadline:
        if not query.isActive:
            query.awaitTermination()
        steps = [
            (visible[each.snapshot_id], dict(offsets))
            for each in (load_table(table).snapshots if visible else ())
            if each.snapshot_id in visible and (offsets := committed_offsets(each.summary)) is not None
        ]
        if steps and all(steps[-1][1].get(part, 0) >= end for part, end in ends.items()):
            return steps
        time.sleep(0.5)
    raise SystemExit(f"the stream is not done {_PATIENCE_SECONDS:.0f} s after the producer")


def _latencies(
    source: KafkaSource, part: Partition, begin: int, end: int, steps: list[Step]
) -> tuple[Any, Any]:
    """(when each record of a partition was produced, how long it took until it was visible), in seconds."""
    topic, partition = part
    raw = list(fetch_range(source, OffsetRange(topic, partition, begin, end), ("timestamp",)))
    offsets = np.concatenate([batch.column("offset").to_numpy() for batch in raw])
    stamps = np.concatenate([batch.column("timestamp").cast("int64").to_numpy() for batch in raw]) / 1e6
    reached = np.array([positions.get(part, 0) for _, positions in steps])
    moments = np.array([moment for moment, _ in steps])
    return stamps, moments[np.searchsorted(reached, offsets, side="right")] - stamps


def summary(produced: Any, waited: Any, checkpoints: int) -> dict[str, Any]:
    """Percentiles of all records after the warm-up, and their course: the same for windows of equal length, in order."""
    since = produced - produced.min()
    warm = since >= min(WARM_SECONDS, since.max() / 3)
    bounds = np.linspace(since[warm].min(), since.max() + 1e-6, WINDOWS + 1)
    course = []
    for low, high in pairwise(bounds):
        inside = waited[(since >= low) & (since < high)]
        if len(inside):
            p50, p99 = np.percentile(inside, [50, 99])
            course.append({"from_seconds": round(float(low), 1), "p50": round(p50, 3), "p99": round(p99, 3)})
    p50, p99 = np.percentile(waited[warm], [50, 99])
    return {
        "records": len(waited),
        "checkpoints": checkpoints,
        "p50": round(float(p50), 3),
        "p99": round(float(p99), 3),
        "longest": round(float(waited[warm].max()), 3),
        "course": course,
    }


if __name__ == "__main__":
    main()
