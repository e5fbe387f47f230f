"""What `streamlake check` says of the connector that Spark needs for a checkpoint directory."""

from __future__ import annotations

from pathlib import Path

import pytest

from streamlake.operate.check import connector_check
from streamlake.operate.check.check_points import Points, Verdict
from streamlake.operate.check.connector_check import check_connector


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "jars").mkdir()
    (tmp_path / "jars" / "hadoop-client-api-3.4.2.jar").touch()
    monkeypatch.setenv("SPARK_HOME", str(tmp_path))
    return tmp_path


def said(location: str, **config: str) -> list[tuple[Verdict, str]]:
    points = Points()
    check_connector(
        location, {key.replace("_", "."): text for key, text in config.items()}, "checkpoint", points
    )
    return [(point.verdict, point.message) for point in points.found]


@pytest.mark.parametrize(
    ("location", "package"),
    [
        ("s3a://b/c", "org.apache.hadoop:hadoop-aws:3.4.2"),
        ("abfss://c@a.dfs.core.windows.net/c", "org.apache.hadoop:hadoop-azure:3.4.2"),
        ("gs://b/c", "com.google.cloud.bigdataoss:gcs-connector:hadoop3"),
    ],
)
def test_a_jar_that_is_missing(
    home: Path, monkeypatch: pytest.MonkeyPatch, location: str, package: str
) -> None:
    [(verdict, message)] = said(location)
    assert verdict is Verdict.ERROR
    assert f"add spark.jars.packages: {package}" in message
    monkeypatch.setattr(connector_check, "under_spark_submit", lambda: True)
    [(verdict, message)] = said(location)
    assert (verdict, "--packages" in message) == (Verdict.WARNING, True)
    assert said(location, spark_jars_packages=package) == []
    (home / "jars" / f"{package.split(':')[1]}-9.jar").touch()
    assert said(location) == []


def test_schemes_that_hadoop_does_not_have(home: Path) -> None:
    [(verdict, message)] = said("s3://b/c")
    assert verdict is Verdict.ERROR
    assert message.endswith("has no s3://; write s3a://b/c")
    (home / "jars" / "hadoop-aws-3.4.2.jar").touch()
    assert said("s3://b/c", spark_hadoop_fs_s3_impl="org.apache.hadoop.fs.s3a.S3AFileSystem") == []


@pytest.mark.parametrize("location", ["/lake/c", "file:///lake/c", "hdfs://n:8020/c"])
def test_what_needs_none(location: str) -> None:
    assert said(location) == []
