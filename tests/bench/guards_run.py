"""Two append streams of one process in turn, one of them without guards: `python guards_run.py INPUT HOME ROUNDS`.

Each round lands the files of INPUT once more for each stream, which takes one per checkpoint; the first checkpoint of a
round is left out, because it starts a query. Prints one JSON object: seconds of the checkpoints, and of their guards.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from pyspark.sql import SparkSession

from streamlake import IcebergSink
from tests.bench.data import DDL
from tests.bench.unguarded import SwitchedGuards
from tests.helpers.spark import build_session


def main() -> None:
    source, home, rounds = Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3])
    spark = build_session(home)
    guards = SwitchedGuards()
    seconds: dict[str, list[float]] = {"guarded": [], "unguarded": []}
    shares: list[float] = []
    for number in range(rounds):
        # The one that begins changes, because every round is a little faster than the one before.
        for kind in sorted(seconds, reverse=number % 2 == 0):
            taken = seconds[kind]
            guards.are_on = kind == "guarded"
            guards.seconds.clear()
            batches = _stream(spark, source, home / kind, number)
            if number == 0:
                # The virtual machine warms up.
                continue
            taken += [round(batches[at], 4) for at in sorted(batches)[1:]]
            if guards.are_on:
                shares += [round(guards.seconds[at] / batches[at], 5) for at in sorted(batches)[1:]]
    spark.stop()
    print(json.dumps({**seconds, "shares": shares}))


def _stream(spark: SparkSession, source: Path, home: Path, number: int) -> dict[int, float]:
    """Checkpoint id -> seconds, of one round."""
    landing = home / "landing"
    landing.mkdir(parents=True, exist_ok=True)
    for file in source.glob("*.parquet"):
        os.link(file, landing / f"{number:04d}-{file.name}")
    frame = spark.readStream.schema(DDL).option("maxFilesPerTrigger", 1).parquet(str(landing))
    query = IcebergSink(str(home / "t"), create=True).start(
        frame, checkpoint_location=str(home / "checkpoint"), trigger={"availableNow": True}
    )
    query.awaitTermination()
    return {
        progress["batchId"]: progress["durationMs"]["triggerExecution"] / 1000
        for progress in query.recentProgress
        if progress["numInputRows"]
    }


if __name__ == "__main__":
    main()
