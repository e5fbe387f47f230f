"""The report keeps what a run of a part of a benchmark does not measure anew."""

from __future__ import annotations

import json
from pathlib import Path

from tests.bench.report import Figure, write_report


def test_a_part_of_a_benchmark_leaves_the_rest_of_its_runs(tmp_path: Path) -> None:
    first = [Figure(name, "s", 1.0, None, "goal", "lower", 2.0) for name in ("a", "b")]
    write_report(tmp_path, first, {"peers": {"a/ours": [1], "b/ours": [1]}, "other": [1]})
    write_report(tmp_path, [Figure("b", "s", 5.0, None, "goal", "lower", 2.0)], {"peers": {"b/ours": [2]}})
    report = json.loads((tmp_path / "report.json").read_text())
    assert report["runs"] == {"peers": {"a/ours": [1], "b/ours": [2]}, "other": [1]}
    assert {figure["name"]: figure["ours"] for figure in report["figures"]} == {"a": 1.0, "b": 5.0}
