"""What holds for every unit test: none starts Spark. A session that one leaves behind would be taken for that of the run."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def _starts_no_spark() -> Iterator[None]:
    before = _has_spark()
    yield
    assert before or not _has_spark(), (
        "this test has started Spark: refuse bad options before a session is asked for"
    )


def _has_spark() -> bool:
    context = getattr(sys.modules.get("pyspark"), "SparkContext", None)
    return context is not None and context._active_spark_context is not None
