"""A checkpoint directory is deleted: Spark goes on from the one that `streamlake recover --resume-from-table` writes."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from streamlake import IcebergTables, KafkaSource, load_table
from streamlake.cli.main import main
from tests.helpers.kafka_stream import AVAILABLE_NOW, RUN_SECONDS, KafkaStream

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


class Topics:
    """A query that appends each of two topics to a table of its own."""

    def __init__(self, broker: KafkaBroker, home: Path) -> None:
        self.home = home
        self.names = [broker.create_topic(partitions=2) for _ in range(2)]
        self._broker = broker
        self._next = 0

    def produce(self, topic: str) -> None:
        ids = range(self._next, self._next + 20)
        self._next = ids.stop
        self._broker.produce(topic, [(str(id).encode(), json.dumps({"id": id}).encode()) for id in ids])

    def run(self) -> None:
        tables = IcebergTables(str(self.home / "{topic}"), mode="append", pipeline="shop")
        source = KafkaSource(self._broker.bootstrap_servers, ",".join(self.names), schema="id long")
        query = tables.start(source, checkpoint_location=str(self.home / "checkpoint"), trigger=AVAILABLE_NOW)
        try:
            assert query.awaitTermination(RUN_SECONDS)
        finally:
            query.stop()

    def ids(self) -> list[int]:
        tables = (load_table(str(self.home / name)) for name in self.names)
        return sorted(id for table in tables for id in table.scan().to_arrow()["id"].to_pylist())

    def resume(self, *arguments: str) -> int:
        with pytest.raises(SystemExit) as ended:
            main(
                [
                    "recover", str(self.home / "{topic}"), "--checkpoint-location",
                    str(self.home / "checkpoint"), "--resume-from-table", "--pipeline", "shop", *arguments,
                ]
            )  # fmt: skip
        assert isinstance(ended.value.code, int)
        return ended.value.code


def test_each_of_many_tables_goes_on_where_its_own_commits_end(
    spark: SparkSession, kafka_broker: KafkaBroker, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """One of them lacks the last checkpoint, which the other one has."""
    topics = Topics(kafka_broker, tmp_path)
    one, two = topics.names
    for names in ((one, two), (two,)):
        for name in names:
            topics.produce(name)
        topics.run()
    shutil.copytree(tmp_path / two, tmp_path / "before")
    for name in (one, two):
        topics.produce(name)
    topics.run()
    # The driver died between the commits of the two tables.
    shutil.rmtree(tmp_path / two)
    (tmp_path / "before").rename(tmp_path / two)
    shutil.rmtree(tmp_path / "checkpoint")
    topics.produce(one)
    assert topics.resume("--yes") == 1
    assert "name their topics" in capsys.readouterr().err
    assert topics.resume("--topics", one, "--yes") == 1
    assert f"that --topics lacks: {two}" in " ".join(capsys.readouterr().err.split())
    assert not (tmp_path / "checkpoint").exists()
    assert topics.resume("--topics", f"{one},{two}", "--yes") == 0
    assert "each topic where the last commit of its table ends" in capsys.readouterr().out
    for _ in range(2):
        topics.run()
        assert topics.ids() == list(range(120))
    topics.produce(two)
    topics.run()
    assert topics.ids() == list(range(140))
