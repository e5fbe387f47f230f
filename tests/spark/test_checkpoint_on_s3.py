"""A checkpoint directory on S3: Spark's logs and ours through hadoop-aws, and a second driver that is refused."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from streamlake.checkpoint.spark_directory import SparkDirectory
from streamlake.storage.file_io import file_io_for
from tests.helpers import rings
from tests.helpers.batch_write import append
from tests.helpers.jars import HADOOP_AWS, jars
from tests.helpers.object_store import S3Server, s3_server
from tests.helpers.rings import PartUnavailableError
from tests.helpers.spark import run_driver
from tests.helpers.tables import make_table

DRIVER = Path(__file__).with_name("s3a_checkpoint_driver.py")
pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def server() -> Iterator[S3Server]:
    try:
        jars(HADOOP_AWS)
    except PartUnavailableError as error:
        rings.give_up("hadoop-aws", error)
    with s3_server() as running:
        running.bucket("lake")
        yield running


def drive(server: S3Server, home: Path, mode: str) -> object:
    done = run_driver(DRIVER, home, server.endpoint, mode, home=home / "driver")
    return json.loads(done.stdout.splitlines()[-1])


def test_a_stream_and_its_restart(server: S3Server, tmp_path: Path) -> None:
    source = make_table(tmp_path / "source", "id long")
    ids: list[int] = []
    for first in (0, 10):
        append(source, pa.table({"id": pa.array(range(first, first + 10), pa.int64())}))
        ids += range(first, first + 10)
        assert drive(server, tmp_path, "stream") == ids
    directory = SparkDirectory(
        "s3a://lake/checkpoint", file_io_for("s3a://lake/checkpoint", server.properties)
    )
    assert directory.planned == directory.completed
    assert len(directory.completed) == 2
    assert directory.torn == []
    keys = server.keys("lake", "checkpoint/streamlake/offsets/")
    assert sorted(key.rpartition("/")[2] for key in keys) == ["0", "1"]


def test_of_drivers_that_log_one_checkpoint_all_but_one_are_refused(server: S3Server, tmp_path: Path) -> None:
    found = drive(server, tmp_path, "race")
    assert found == {"winners": [1] * 10, "kept": True}
    assert not [key for key in server.keys("lake", "race/") if "tmp" in key]
