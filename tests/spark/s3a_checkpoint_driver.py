"""A driver whose checkpoint directory is on S3, through hadoop-aws: `s3a_checkpoint_driver.py HOME ENDPOINT MODE`.

Prints one line of JSON. `stream`: a table into another one, until nothing is left. `race`: drivers that log offsets.
"""

from __future__ import annotations

import json
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from streamlake import IcebergSink, IcebergSource, load_table
from streamlake.errors import FencedError
from streamlake.pipeline.direct.offset_log import OffsetLog
from streamlake.pipeline.kafka.direct_offsets import KAFKA_OFFSETS
from streamlake.source.offsets import SourceOffsets
from tests.helpers.jars import HADOOP_AWS, jars
from tests.helpers.spark import QUICK, build_session

ROUNDS, DRIVERS = 10, 3


def main(home: Path, endpoint: str, mode: str) -> None:
    settings = {
        "spark.jars": ",".join(map(str, jars(HADOOP_AWS))),
        "spark.hadoop.fs.s3a.endpoint": endpoint,
        "spark.hadoop.fs.s3a.endpoint.region": "us-east-1",
        "spark.hadoop.fs.s3a.access.key": "test-key",
        "spark.hadoop.fs.s3a.secret.key": "test-secret",
        "spark.hadoop.fs.s3a.path.style.access": "true",
    }
    spark = build_session(home / "spark", extra={**QUICK, **settings})
    if mode == "stream":
        sink = IcebergSink(str(home / "target"), create=True, pipeline="p")
        query = sink.start(
            IcebergSource(str(home / "source")),
            checkpoint_location="s3a://lake/checkpoint",
            trigger={"availableNow": True},
        )
        assert query.awaitTermination(120)
        found = load_table(str(home / "target")).scan().to_arrow()["id"].to_pylist()
        print(json.dumps(sorted(found)))
        return
    logs = [OffsetLog(spark, "s3a://lake/race", KAFKA_OFFSETS) for _ in range(DRIVERS)]

    def add(driver: int, number: int) -> int | None:
        try:
            logs[driver].add(number, SourceOffsets({("t", 0): 100 * number + driver}))
        except FencedError:
            return None
        return driver

    winners = []
    with ThreadPoolExecutor(DRIVERS) as threads:
        for number in range(ROUNDS):
            own = threads.map(add, range(DRIVERS), [number] * DRIVERS)
            winners.append([driver for driver in own if driver is not None])
    kept = [logs[0].read(number) for number in range(ROUNDS)]
    expected = [SourceOffsets({("t", 0): 100 * number + who[0]}) for number, who in enumerate(winners)]
    print(json.dumps({"winners": [len(each) for each in winners], "kept": kept == expected}))


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
