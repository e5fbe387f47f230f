"""What Spark says of a query's micro-batches, as figures: rates, and where the time of a trigger goes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


def figures(reports: Sequence[Any], messages: Sequence[int] | None = None) -> dict[str, Any]:
    """`steady_rate` in messages a second over all micro-batches but the first, and milliseconds by phase.

    `messages` has the micro-batches' sizes where Spark does not know them.
    """
    sizes = list(messages) if messages is not None else [report["numInputRows"] for report in reports]
    batches = [(size, report["durationMs"]) for size, report in zip(sizes, reports, strict=False) if size]
    steady = batches[1:]
    spent = sum(durations["triggerExecution"] for _, durations in steady) / 1000
    return {
        "batch_starts": [str(report["timestamp"]) for report in reports],
        "batch_seconds": [round(durations["triggerExecution"] / 1000, 3) for _, durations in batches],
        "steady_rate": round(sum(size for size, _ in steady) / spent) if spent else None,
        "first_batch_ms": dict(batches[0][1]) if batches else {},
        "phases_ms": {
            phase: sum(durations.get(phase, 0) for _, durations in steady) for phase in sorted(steady[0][1])
        }
        if steady
        else {},
    }
