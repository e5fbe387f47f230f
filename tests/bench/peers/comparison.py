"""The comparison side by side: engines in turn, round after round, over the same topics; what is done is not done again.

A job is run over a topic and over one of its first half, so that a rate without start-up comes out: difference over difference.
A run that fails, or whose table does not hold what the topic leads to, counts for nothing. Every run's result is kept in `runs.json`
in the work folder.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.bench.peers import engines
from tests.bench.peers.engines import FLINK, SPARK, STREAMLAKE, STREAMLAKE_V2, Pace
from tests.bench.peers.measured import RunFailedError
from tests.bench.peers.topics import Topics

TIMEOUT_SECONDS = 300
SCANS = 3
Result = dict[str, Any]


@dataclass(frozen=True)
class Job:
    """`kind` of topic; `totals`: which of the topic's totals the table must hold; the engines that can do it."""

    kind: str
    totals: str
    engines: tuple[str, ...]


JOBS = {
    "append": Job("json", "append", (STREAMLAKE, FLINK, SPARK)),
    "upsert": Job("json", "upsert", (STREAMLAKE, STREAMLAKE_V2, FLINK, SPARK)),
    "debezium": Job("debezium", "upsert", (STREAMLAKE, SPARK)),
}


@dataclass(frozen=True)
class Load:
    """How much is compared: messages of the whole topic, keys that they are over, commits."""

    messages: int = 4_000_000
    keys: int = 1_000_000
    pace: Pace = field(default_factory=lambda: Pace(1_000_000, 2_000))

    @property
    def half(self) -> int:
        return self.messages // 2


class Runs:
    """The results so far, in a file: one per job, engine, number of messages and round."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._found: dict[str, Result] = json.loads(path.read_text()) if path.exists() else {}

    def get(self, *name: object) -> Result | None:
        return self._found.get(self._key(name))

    def put(self, result: Result, *name: object) -> None:
        self._found[self._key(name)] = result
        self._path.write_text(json.dumps(self._found, indent=1))

    @staticmethod
    def _key(name: Sequence[object]) -> str:
        return "/".join(map(str, name))


def compare(work: Path, load: Load, rounds: int, jobs: Sequence[str], chosen: Sequence[str] = ()) -> Runs:
    """Run what is missing of `jobs`, each with all its engines or with those `chosen`. Prints a line per run."""
    work.mkdir(parents=True, exist_ok=True)
    runs = Runs(work / f"runs-{load.messages}-{load.keys}-{load.pace.batch}-{load.pace.checkpoint_ms}.json")
    with Topics(work, load.keys) as topics:
        for number in range(rounds):
            for name in jobs:
                names = [each for each in JOBS[name].engines if not chosen] or list(chosen)
                _round(work, load, topics, runs, name, names, number)
    return runs


def _round(
    work: Path, load: Load, topics: Topics, runs: Runs, name: str, names: Sequence[str], number: int
) -> None:
    job, left = JOBS[name], {}
    for messages in (load.half, load.messages):
        topic, account = topics.filled(job.kind, messages)
        for engine in names:
            if runs.get(name, engine, messages, number) is not None:
                continue
            home = work / f"{name}-{engine}-{messages}-{number}"
            shutil.rmtree(home, ignore_errors=True)
            try:
                result = engines.run(engine, name, topics.servers, topic, home, load.pace, TIMEOUT_SECONDS)
            except RunFailedError as error:
                print(f"  FAILED: {name} by {engine}, {messages:,} messages: {error}", flush=True)
                continue
            result["rate"] = round(messages / result["seconds"])
            left[engine, messages] = home, result, account[job.totals]
            _tell(name, engine, messages, number, result)
    if left:
        _check(work, runs, name, number, left)


def _check(
    work: Path,
    runs: Runs,
    name: str,
    number: int,
    left: dict[tuple[str, int], tuple[Path, Result, Result]],
) -> None:
    """Compare the tables with what the topics lead to, and keep the results; the whole topic's are scanned as well."""
    most = max(messages for _, messages in left)
    home = work / f"{name}-check-{number}"
    shutil.rmtree(home, ignore_errors=True)
    print(f"  {name:9} checking ...", flush=True)
    found = engines.checked(
        {_label(*key): engines.location(place) for key, (place, _, _) in left.items()},
        [_label(*key) for key in left if name != "append" and key[1] == most],
        SCANS,
        home,
        TIMEOUT_SECONDS * 2,
    )
    for key, (place, result, expected) in left.items():
        table = found[_label(*key)]
        if any(table[total] != expected[total] for total in expected):
            print(f"  WRONG: {name} by {key[0]}: {table} instead of {expected}; see {place}", flush=True)
            continue
        result |= {fact: table[fact] for fact in ("rows", "scan_seconds", "scans") if fact in table}
        if "scan_seconds" in table:
            print(f"  {name:9} {key[0]:14} Spark's scan {table['scan_seconds']:.2f} s", flush=True)
        runs.put(result, name, *key, number)
        shutil.rmtree(place)
    shutil.rmtree(home, ignore_errors=True)


def _label(engine: str, messages: int) -> str:
    return f"{engine}/{messages}"


def _tell(name: str, engine: str, messages: int, number: int, result: Result) -> None:
    steady = f", steady {result['steady_rate']:,} msg/s" if result.get("steady_rate") else ""
    print(
        f"  {name:9} {engine:14} {messages:>9,} messages, round {number + 1}: {result['seconds']:6.2f} s, "
        f"{result['rate']:>9,} msg/s{steady}, {result['peak_mb']:,} MB, CPU {result['cpu_seconds']}",
        flush=True,
    )
