"""A checkpoint directory is deleted: Spark goes on from the one that `streamlake recover --resume-from-table` writes."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from streamlake.cli.main import main
from tests.helpers.kafka_stream import KafkaStream

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.helpers.broker import KafkaBroker


def test_every_record_is_in_the_table_once(
    spark: SparkSession, kafka_broker: KafkaBroker, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    stream = KafkaStream(kafka_broker, tmp_path, partitions=2)
    stream.produce(range(50), partition=0)
    stream.produce(range(50, 80), partition=1)
    stream.run(stream.sink(pipeline="numbers"))
    shutil.rmtree(stream.checkpoint)
    stream.produce(range(80, 100), partition=1)
    with pytest.raises(SystemExit) as ended:
        main(
            [
                "recover",
                stream.location,
                "--checkpoint-location",
                stream.checkpoint,
                "--resume-from-table",
                "--yes",
            ]
        )
    assert ended.value.code == 0
    assert f"goes on at {stream.topic}-0: 50, {stream.topic}-1: 30" in capsys.readouterr().out
    for _ in range(2):
        stream.run(stream.sink(pipeline="numbers"))
        assert stream.ids() == list(range(100))
    stream.produce(range(100, 110), partition=0)
    stream.run(stream.sink(pipeline="numbers"))
    assert stream.ids() == list(range(110))
