"""The comparison's figures: medians over rounds, ours beside each peer, with the goals."""

from __future__ import annotations

import statistics
from typing import Any

from tests.bench.peers.comparison import JOBS, Load, Result, Runs
from tests.bench.peers.engines import FLINK, NAMES, SPARK, SPARK_V3, STREAMLAKE, STREAMLAKE_V2
from tests.bench.report import Figure

GOALS: dict[tuple[str, str, str], float] = {
    ("append", "whole run", FLINK): 1.0,
    ("append", "whole run", SPARK): 1.8,
    ("append", "steady", FLINK): 1.2,
    ("append", "steady", SPARK): 2.5,
    ("append", "peak memory", FLINK): 1.0,
    ("upsert", "whole run", FLINK): 1.6,
    ("upsert", "steady", FLINK): 1.6,
    ("upsert", "Spark's scan afterwards", FLINK): 0.1,
    ("upsert", "peak memory", FLINK): 1.0,
    ("debezium", "whole run", SPARK): 4.0,
    ("debezium", "steady", SPARK): 4.0,
}
"""Ours over the peer's; the table of format version 2 has the same goals."""
TITLES = {
    "append": "Kafka JSON to append",
    "upsert": "Kafka JSON to upsert",
    "debezium": "Debezium JSON to upsert",
}


def figures_of(runs: Runs, load: Load, rounds: int) -> tuple[list[Figure], dict[str, Any]]:
    """A figure for each measure of ours for which a peer has one as well, and all raw results by run."""
    found: list[Figure] = []
    raw: dict[str, Any] = {}
    for job in JOBS:
        measures: dict[str, dict[str, float]] = {}
        for engine in (STREAMLAKE, STREAMLAKE_V2, *NAMES):
            whole = _results(runs, job, engine, load.messages, rounds)
            half = _results(runs, job, engine, load.half, rounds)
            raw |= {
                f"{job}/{engine}/{kind}": each for kind, each in (("half", half), ("whole", whole)) if each
            }
            if whole and half:
                measures[engine] = _measures(whole, half, load)
        for ours in (STREAMLAKE, STREAMLAKE_V2):
            for peer in NAMES:
                if ours in measures and peer in measures:
                    found += _figures(job, ours, peer, measures[ours], measures[peer])
    return found, {"kafka_peers": raw}


def _results(runs: Runs, job: str, engine: str, messages: int, rounds: int) -> list[Result]:
    results = (runs.get(job, engine, messages, number) for number in range(rounds))
    return [result for result in results if result is not None]


def _measures(whole: list[Result], half: list[Result], load: Load) -> dict[str, float]:
    seconds = _median(whole, "seconds")
    more = seconds - _median(half, "seconds")
    measures = {
        "whole run": load.messages / seconds,
        "peak memory": _median(whole, "peak_mb"),
        "peak memory, shared once": _median(whole, "peak_share_mb"),
    }
    # Of few messages a run is all start, and tells no rate.
    if more > seconds / 20:
        measures["steady"] = (load.messages - load.half) / more
    scanned = [result for result in whole if "scan_seconds" in result]
    if scanned:
        measures["Spark's scan afterwards"] = _median(scanned, "scan_seconds")
    return measures


def _figures(
    job: str, ours: str, peer: str, mine: dict[str, float], theirs: dict[str, float]
) -> list[Figure]:
    title = TITLES[job] + (", v2" if ours == STREAMLAKE_V2 else "")
    # The other format version of Spark's tables has Spark's goals.
    goal_of = SPARK if peer == SPARK_V3 else peer
    units = {"peak memory": "MB", "peak memory, shared once": "MB", "Spark's scan afterwards": "s"}
    return [
        Figure(
            f"{title}, {measure}, beside {peer}",
            units.get(measure, "messages/s"),
            round(value, 2),
            round(theirs[measure], 2),
            NAMES[peer],
            "lower" if measure in units else "higher",
            GOALS.get((job, measure, goal_of)),
        )
        for measure, value in mine.items()
        if measure in theirs
    ]


def _median(results: list[Result], key: str) -> float:
    return statistics.median(float(result[key]) for result in results)
