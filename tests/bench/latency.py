"""How long a record takes from its producer to a reader of the table, at a steady rate, and whether that stays so.

A minute by default; `--latency-seconds 1800` for the half hour that the goal speaks of.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.bench.report import Figure
from tests.helpers.broker import KafkaBroker

Run = Callable[..., dict[str, Any]]


def bench_latency(
    work: Path, run: Run, *, seconds: float, rate: int, modes: list[str]
) -> tuple[list[Figure], dict[str, Any]]:
    """Figures of one run for each mode: percentiles, and the last windows' beside the first ones'."""
    figures: list[Figure] = []
    runs: dict[str, Any] = {}
    home = work / "latency-broker"
    home.mkdir(parents=True)
    with KafkaBroker(home) as broker:
        for mode in modes:
            topic = broker.create_topic(f"latency-{mode}", partitions=2)
            result = run(
                "latency_run.py",
                broker.bootstrap_servers,
                topic,
                work / f"latency-{mode}",
                rate,
                seconds,
                mode,
                timeout_seconds=round(seconds * 3 + 300),
            )
            runs[f"latency_{mode}"] = result
            name = f"produced to visible, {mode}, {rate:,} messages/s"
            figures += [
                Figure(f"{name}, p50", "s", result["p50"], None, "goal", "lower", 1.5),
                Figure(f"{name}, p99", "s", result["p99"], None, "goal", "lower", 3.0),
                Figure(
                    f"{name}, p50 of the last fifth",
                    "s",
                    _mean(result["course"][-2:]),
                    _mean(result["course"][:2]),
                    "of the first fifth",
                    "lower",
                    1.2,
                ),
            ]
    return figures, runs


def _mean(windows: list[dict[str, float]]) -> float:
    return round(sum(each["p50"] for each in windows) / len(windows), 3)
