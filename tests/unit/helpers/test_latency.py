"""The latency benchmark's arithmetic: which commit made a record visible, and the percentiles' course."""

from __future__ import annotations

from datetime import datetime, timezone
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from streamlake.records import RAW_RECORDS
from tests.bench import latency_run
from tests.bench.latency_run import summary


def test_a_record_is_visible_with_the_first_snapshot_beyond_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def fetch(source: Any, piece: Any, columns: Any) -> list[pa.RecordBatch]:
        rows = [
            {
                "topic": "t",
                "partition": 1,
                "offset": at,
                "timestamp": datetime.fromtimestamp(at, timezone.utc),
            }
            for at in range(piece.start, piece.until)
        ]
        return [pa.RecordBatch.from_pylist(rows, RAW_RECORDS)]

    monkeypatch.setattr(latency_run, "fetch_range", fetch)
    part = ("t", 1)
    steps = [(4.0, {part: 3}), (5.0, {part: 3}), (9.5, {part: 6})]
    produced, waited = latency_run._latencies(None, part, 2, 6, steps)  # type: ignore[arg-type]
    assert produced.tolist() == [2, 3, 4, 5]
    assert waited.tolist() == [2.0, 6.5, 5.5, 4.5]


def test_the_course() -> None:
    produced = np.arange(0, 100, 0.01) + 1_700_000_000
    waited = np.where(produced - produced[0] < 10, 30.0, 1.0)
    waited[-100:] = 5.0
    found = summary(produced, waited, checkpoints=7)
    assert (found["records"], found["checkpoints"]) == (10_000, 7)
    assert (found["p50"], found["longest"]) == (1.0, 5.0), "the warm-up is left out"
    assert len(found["course"]) == latency_run.WINDOWS
    assert [each["p99"] for each in found["course"]] == [1.0] * 9 + [5.0]
    assert found["course"][0]["from_seconds"] == 10.0
