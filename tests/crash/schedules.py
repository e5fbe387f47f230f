"""Schedules of the crash matrix: what kind of stream, and how each of its drivers dies before the last one finishes.

A schedule is a walk: its first driver dies at one failpoint, the next at another one while it recovers from the first
death, and so on. Everything follows from a seed.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import product
from typing import Any

from streamlake.failpoints import BOTH, EXECUTOR, REGISTERED

APPEND, POSITION, EQUALITY, COPY_ON_WRITE = "append", "position", "equality", "copy-on-write"
MODES = (APPEND, POSITION, EQUALITY, COPY_ON_WRITE)
INDEXED = (POSITION, COPY_ON_WRITE)
VERSIONS = (2, 3)
FILE, KAFKA, TABLE = "file", "kafka", "table"
INPUTS = (FILE, KAFKA, TABLE)

DRIVER, WORKER, TASK, RANDOM = "driver", "worker", "task", "random"
"""Who is killed and when: the driver at a failpoint; a worker process at one; the driver while a task is at one; the
driver at any time."""
HOWS = ("kill", "exit", "raise")

PHASES: dict[str, tuple[str, ...]] = {
    "start": ("table-created", "checkpoint-noted", "pending-read"),
    "task": (
        "data-file-opened",
        "data-file-closed",
        "delete-file-closed",
        "index-run-written",
        "before-result",
        "result-returned",
        "file-rewritten",
    ),
    "collecting": (
        "before-tasks",
        "results-collected",
        "files-rewritten",
        "delta-manifest-written",
        "index-state-stored",
    ),
    "staged": ("committable-recorded", "manifest-list-written", "before-swap", "metadata-written"),
    "swapped": ("after-create", "after-swap", "before-clean-up", "before-commit-note", "commit-noted"),
    "recovery": ("before-recommit", "after-recommit"),
    "end": ("committable-removed", "index-files-pruned", "before-return"),
    "index": ("before-indexing", "after-indexing", "before-resolution", "after-resolution"),
    "source": ("offsets-planned", "offsets-logged", "splits-planned"),
}
"""Every failpoint, by what a checkpoint is at."""
STREAMS = (
    *((mode, version, source, 1) for mode, version, source in product(MODES, VERSIONS, INPUTS)),
    *(
        (mode, version, source, 3)
        for mode in (APPEND, EQUALITY)
        for version, source in ((2, "kafka"), (3, "file"))
    ),
)
"""Mode, format version, input, and how far writing runs ahead of committing."""
FIRST_ONLY = ("table-created", "checkpoint-noted", "commit-noted")
"""Passed once in the life of a checkpoint directory, in this order."""


@dataclass(frozen=True)
class Death:
    """How one driver ends. `who` is one of the four above, `how` what happens at the `nth` call of `failpoint`; at
    RANDOM, `seconds` after the query has started. `worker`: a failpoint at which one of its workers is killed before.
    `foreign`: another writer commits in between; `loses_index`: the key index is gone when this driver starts."""

    who: str
    failpoint: str = ""
    how: str = "kill"
    nth: int = 1
    seconds: float = 0.0
    worker: str = ""
    foreign: bool = False
    loses_index: bool = False

    def __str__(self) -> str:
        if self.who == RANDOM:
            return f"killed after {self.seconds:.1f} s"
        more = f" (call {self.nth})" if self.nth > 1 else ""
        beside = f" after a worker at {self.worker}" if self.worker else ""
        beside += " beside a foreign writer" * self.foreign + " without its index" * self.loses_index
        return f"{self.who} {self.how} at {self.failpoint}{more}{beside}"


@dataclass(frozen=True)
class Schedule:
    """A stream and its deaths; `name` tells schedules of one run apart. `ahead`: so many checkpoints may be staged and
    not yet committed."""

    name: str
    mode: str
    version: int
    input: str
    deaths: tuple[Death, ...]
    ahead: int = 1

    @property
    def stream(self) -> str:
        ahead = f"/ahead {self.ahead}" if self.ahead > 1 else ""
        return f"{self.mode}/v{self.version}/{self.input}{ahead}{'/damaged' * self.is_damaged}"

    @property
    def is_damaged(self) -> bool:
        """Whether one in a hundred records cannot be decoded, and goes to the rejects table."""
        return (self.mode, self.version, self.input) == (APPEND, 3, "kafka")

    def __str__(self) -> str:
        return f"{self.name} {self.stream}: {'; '.join(map(str, self.deaths))}"

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @staticmethod
    def of_json(obj: dict[str, Any]) -> Schedule:
        return Schedule(**{**obj, "deaths": tuple(Death(**death) for death in obj["deaths"])})


def applies(failpoint: str, mode: str, source: str) -> bool:
    """Whether a stream ever gets to a failpoint."""
    if failpoint in PHASES["source"]:
        return source == TABLE or (source == KAFKA and failpoint != "splits-planned")
    if failpoint in ("file-rewritten", "files-rewritten"):
        return mode == COPY_ON_WRITE
    if failpoint == "delete-file-closed":
        return mode in (POSITION, EQUALITY)
    if failpoint in PHASES["index"] or failpoint in (
        "index-run-written",
        "index-state-stored",
        "index-files-pruned",
    ):
        return mode in INDEXED
    return True


def whole_matrix(seed: int, deaths_per_schedule: int = 5) -> list[Schedule]:
    """Every stream, every failpoint that it gets to, in every way; the schedules of one stream are spread over all, so
    that the first so many of them are a fair sample."""
    chance = random.Random(seed)
    by_stream = []
    for mode, version, source, ahead in STREAMS:
        deaths = list(_deaths(mode, source, chance))
        chance.shuffle(deaths)
        first = [each for each in deaths if each.failpoint in FIRST_ONLY]
        rest = [each for each in deaths if each.failpoint not in FIRST_ONLY]
        walks = [rest[at : at + deaths_per_schedule] for at in range(0, len(rest), deaths_per_schedule)]
        walks = [[*first[at : at + 1], *walk] for at, walk in enumerate(walks)]
        by_stream.append([(mode, version, source, _connected(walk), ahead) for walk in walks])
    longest = max(map(len, by_stream))
    spread = [
        each[at]
        for at in range(longest)
        for each in chance.sample(by_stream, len(by_stream))
        if at < len(each)
    ]
    return [Schedule(f"{seed}.{number}", *stream) for number, stream in enumerate(spread)]


def pairwise(seed: int = 1) -> list[Schedule]:
    """The subset for every day: each phase with each mode, version and input, and these with one another; each
    failpoint at least once, deaths of workers beside those of drivers."""
    chance = random.Random(seed)
    walks: list[tuple[str, int, str, list[Death]]] = []
    used: Counter[str] = Counter()
    for at, mode in enumerate(MODES):
        streams = [(version, INPUTS[(number + at) % 2]) for number, version in enumerate(VERSIONS)]
        for number, (version, source) in enumerate([*streams, (VERSIONS[at % 2], TABLE)]):
            names_of = {
                phase: [name for name in names if applies(name, mode, source)]
                for phase, names in PHASES.items()
            }
            phases = [phase for phase, names in names_of.items() if names]
            mine = [phase for place, phase in enumerate(phases) if (place + number + at // 2) % 2 == 0]
            if source == TABLE and "source" not in mine:
                mine.append("source")
            deaths = []
            for phase in mine:
                names = names_of[phase]
                name = min(names, key=lambda each: used[each])
                used[name] += 1
                deaths.append(_death(name, chance))
            walks.append((mode, version, source, deaths))
    for name in REGISTERED:
        if not used[name]:
            _, _, _, deaths = min(
                (each for each in walks if applies(name, each[0], each[2])),
                key=lambda each: len(each[3]),
            )
            deaths.append(_death(name, chance))
    schedules = []
    for mode, version, source, deaths in walks:
        walk = _with_workers(_connected(deaths), mode, source, chance)
        ahead = 3 if (mode, version) == (EQUALITY, 2) and source != TABLE else 1
        schedules.append(Schedule(f"{mode}-{version}-{source}", mode, version, source, walk, ahead))
    return schedules


def _with_workers(
    deaths: Sequence[Death], mode: str, source: str, chance: random.Random
) -> tuple[Death, ...]:
    """Where a driver dies after the tasks of its first checkpoint, a worker of that checkpoint dies before."""
    late = {name for phase in ("collecting", "staged", "swapped") for name in PHASES[phase]} - {
        "before-tasks"
    }
    names = [
        name for name in PHASES["task"] if applies(name, mode, source) and REGISTERED[name][0] == EXECUTOR
    ]
    return tuple(
        replace(death, worker=chance.choice(names)) if death.failpoint in late and at % 2 else death
        for at, death in enumerate(deaths)
    )


def _deaths(mode: str, source: str, chance: random.Random) -> Iterator[Death]:
    for name, (where, _) in REGISTERED.items():
        if not applies(name, mode, source):
            continue
        if where in (EXECUTOR, BOTH):
            yield replace(_death(name, chance), who=WORKER)
            yield replace(_death(name, chance), who=TASK, how="kill")
        else:
            yield replace(_death(name, chance), how="kill")
    for _ in range(3):
        yield Death(RANDOM, seconds=round(chance.uniform(0.0, 8.0), 1))


def _death(name: str, chance: random.Random) -> Death:
    where, _ = REGISTERED[name]
    who = chance.choice((WORKER, TASK)) if where in (EXECUTOR, BOTH) else DRIVER
    how = chance.choices(HOWS, (8, 1, 1))[0] if who == DRIVER else "kill"
    if name in PHASES["staged"] and how == "raise":
        how = "kill"  # an error there may be tried again, and then nothing is left to recover
    if name in FIRST_ONLY or any(name in PHASES[phase] for phase in ("start", "recovery", "index")):
        nth = 1
    else:
        nth = chance.choice((1, 1, 2)) if who == DRIVER else 1
    lost = name in ("before-indexing", "after-indexing") and chance.random() < 0.5
    return Death(who, name, how, nth, foreign=name in PHASES["index"] and not lost, loses_index=lost)


def _connected(deaths: Sequence[Death]) -> tuple[Death, ...]:
    """The deaths, in an order and with what they need to come about: a first death that leaves something to recover
    from, a table before an index is lost."""
    staged = Death(DRIVER, "committable-recorded")
    found: list[Death] = sorted(deaths, key=lambda each: _turn(each.failpoint))
    connected: list[Death] = []
    for death in found:
        before = connected[-1] if connected else None
        if death.failpoint in PHASES["recovery"] and not (before and _leaves_staged(before)):
            connected.append(staged)
        if death.loses_index and not any(map(_leaves_committed, connected)):
            connected.append(Death(DRIVER, "after-swap"))
        connected.append(death)
    return tuple(connected)


def _turn(failpoint: str) -> int:
    return FIRST_ONLY.index(failpoint) if failpoint in FIRST_ONLY else len(FIRST_ONLY)


def _leaves_committed(death: Death) -> bool:
    later = (*PHASES["swapped"], *PHASES["end"], "after-recommit")
    return death.who == DRIVER and death.failpoint in later


def _leaves_staged(death: Death) -> bool:
    return death.who == DRIVER and death.how != "raise" and death.failpoint in PHASES["staged"]
