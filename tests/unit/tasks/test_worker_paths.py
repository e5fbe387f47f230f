"""Spark's archives go from the importers that a worker refreshes, and from its search path only the core jar."""

from __future__ import annotations

import sys

import pytest

from streamlake.tasks.worker_paths import keep_archive_directories

JAR = "/opt/spark/jars/spark-core_2.13-4.1.4.jar"
PYSPARK = "/opt/spark/python/lib/pyspark.zip"
PY4J = "/opt/spark/python/lib/py4j-0.10.9.9-src.zip"
OTHERS = [
    "/opt/jars/graphframes-0.9-spark3.5.jar",
    "/opt/spark-core",
    "/tmp/files/my_pyspark.zip",
    "/tmp/a.zip/b",
]


def test_spark_archives(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [PYSPARK, PY4J, JAR, *OTHERS, JAR])
    known = [
        JAR,
        f"{JAR}/org",
        PYSPARK,
        f"{PYSPARK}/pyspark",
        f"{PYSPARK}/pyspark/sql",
        f"{PY4J}/py4j",
        *OTHERS,
    ]
    monkeypatch.setattr(sys, "path_importer_cache", dict.fromkeys(known))
    keep_archive_directories()
    keep_archive_directories()
    assert sys.path == [PYSPARK, PY4J, *OTHERS]
    assert list(sys.path_importer_cache) == OTHERS
