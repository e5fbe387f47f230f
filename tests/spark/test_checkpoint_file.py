"""Our small files in a checkpoint directory: the older or the newer one whole, however a driver ends."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from streamlake.pipeline.spark import checkpoint_file
from streamlake.pipeline.spark.checkpoint_file import CheckpointFile, HadoopFiles

OLD, NEW = b'{"older": 1}', b'{"newer": 2}'
NAME = "streamlake/quarantine.json"


@pytest.fixture(params=["local", "renamed"])
def file(
    spark: SparkSession, tmp_path: Path, request: Any, monkeypatch: pytest.MonkeyPatch
) -> CheckpointFile:
    """On local disks, and on a file system that is only reached through Hadoop."""
    if request.param == "renamed":
        monkeypatch.setattr(checkpoint_file, "_LOCAL", ())
    return CheckpointFile(spark, spark._jvm.org.apache.hadoop.fs.Path(str(tmp_path)), NAME)


def test_the_newer_file_takes_the_place_of_the_older(file: CheckpointFile, tmp_path: Path):
    assert file.read() is None
    for content in (OLD, NEW):
        file.write(content)
        assert file.read() == content.decode()
    left = [path.name for path in (tmp_path / "streamlake").iterdir() if not path.name.endswith(".crc")]
    assert left == ["quarantine.json"]


def test_a_driver_that_is_killed_in_the_middle_of_a_write_leaves_the_older_file(
    file: CheckpointFile, monkeypatch: pytest.MonkeyPatch
):
    whole = HadoopFiles.write

    def cut_short(self: HadoopFiles, path: Any, content: bytes) -> None:
        whole(self, path, content[: len(content) // 2])
        raise KeyboardInterrupt

    file.write(OLD)
    with monkeypatch.context() as patch:
        patch.setattr(HadoopFiles, "write", cut_short)
        with contextlib.suppress(KeyboardInterrupt):
            file.write(NEW)
    assert file.read() in (OLD.decode(), NEW.decode())


@pytest.mark.parametrize(("left", "text"), [(b"", None), (OLD[:5], None), (OLD, OLD.decode())])
def test_what_an_older_version_left_of_its_first_write_counts_where_it_is_whole(
    file: CheckpointFile, tmp_path: Path, left: bytes, text: str | None
):
    (tmp_path / "streamlake").mkdir()
    (tmp_path / f"{NAME}.next").write_bytes(left)
    assert file.read() == text
    file.write(NEW)
    assert file.read() == NEW.decode()


def test_a_checksum_of_hadoops_does_not_outlive_its_file(
    file: CheckpointFile, spark: SparkSession, tmp_path: Path
):
    files = HadoopFiles(spark, spark._jvm.org.apache.hadoop.fs.Path(str(tmp_path)))
    files.write(files.path(NAME), OLD)
    file.write(NEW)
    assert file.read() == NEW.decode()
