"""Checks whether Spark can reach a checkpoint directory: on an object store it needs a connector of Hadoop's.

streamlake reaches the store by itself. But the directory is written by Spark, whose jars and settings are its
own.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path

from streamlake.operate.check.check_points import Points
from streamlake.pipeline.spark.session import under_spark_submit
from streamlake.storage.file_io import scheme_of
from streamlake.storage.object_settings import AZURE_SCHEMES, GCS_SCHEMES, OBJECT_SCHEMES

_JAR_SETTINGS = ("spark.jars", "spark.jars.packages", "spark.driver.extraClassPath")
_GCS = "com.google.cloud.bigdataoss:gcs-connector:hadoop3-2.2.26"
_OWN_NAMES = ("s3a", "gs", "abfs", "abfss", "wasb", "wasbs")
"""The schemes that Hadoop has file systems for."""
_USUAL = {"s3": "s3a", "s3n": "s3a", "gcs": "gs"}


def check_connector(location: str, config: Mapping[str, str], about: str, points: Points) -> None:
    """Warn when the jar that Spark needs for a checkpoint directory is not to be seen.

    `config` has Spark's settings of the pipeline. What the command line of spark-submit adds is not known.
    """
    scheme = scheme_of(location)
    if scheme not in OBJECT_SCHEMES:
        return
    home = _spark_home()
    if scheme not in _OWN_NAMES and f"spark.hadoop.fs.{scheme}.impl" not in config:
        usual = f"{_USUAL[scheme]}://{location.partition('://')[2]}"
        points.error(
            about, f"Hadoop, through which Spark writes {location}, has no {scheme}://; write {usual}"
        )
        return
    jar, package = _connector(scheme, _hadoop_version(home))
    given = " ".join(config.get(key, "") for key in _JAR_SETTINGS)
    if jar in given or any(home.glob(f"jars/*{jar}*.jar")):
        return
    said = (
        f"Spark writes {location} through Hadoop, and its jar {jar} is not among those of {home}/jars; add "
        f"spark.jars.packages: {package} to spark.config, with the credentials as spark.hadoop.fs.*"
    )
    if under_spark_submit():
        points.warning(about, f"{said}, unless the command line of spark-submit brings it (--packages)")
    else:
        points.error(about, said)


def _connector(scheme: str, hadoop: str) -> tuple[str, str]:
    """The name of a scheme's jar, and the package to ask for."""
    if scheme in GCS_SCHEMES:
        return "gcs-connector", _GCS
    jar = "hadoop-azure" if scheme in AZURE_SCHEMES else "hadoop-aws"
    return jar, f"org.apache.hadoop:{jar}:{hadoop}"


def _spark_home() -> Path:
    """Where the installation of Spark is that this environment starts."""
    if os.environ.get("SPARK_HOME"):
        return Path(os.environ["SPARK_HOME"])
    spec = find_spec("pyspark")
    return Path(spec.origin).parent if spec is not None and spec.origin else Path()


def _hadoop_version(home: Path) -> str:
    """The version of Hadoop that Spark brings, which its connectors have to have."""
    for jar in home.glob("jars/hadoop-client-api-*.jar"):
        return jar.stem.removeprefix("hadoop-client-api-")
    return "VERSION (that of Spark's Hadoop)"
