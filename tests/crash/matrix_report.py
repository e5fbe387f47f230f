"""What came of each schedule of a crash matrix, in a file that grows: the matrix is run in parts, and a part that is
interrupted costs the schedules that were at work.

Invariant: the file is whole at any time; a schedule stands in it once it is decided, right or wrong.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from streamlake.failpoints import REGISTERED
from streamlake.storage.local import LocalFileIO
from tests.crash.schedules import RANDOM, Schedule


@dataclass(frozen=True)
class DeathRecord:
    """What became of one death: `came` when the failpoint was reached and did what it should."""

    who: str
    failpoint: str
    came: bool
    exit_code: int | None
    committed: int
    seconds: float


@dataclass(frozen=True)
class Decided:
    """What came of a schedule; `error` is what was wrong, None where nothing was."""

    schedule: Schedule
    error: str | None
    met: tuple[DeathRecord, ...] = ()
    rows: int = 0
    checkpoints: int = 0
    orphans: dict[str, int] = field(default_factory=dict)

    @property
    def came(self) -> list[DeathRecord]:
        return [each for each in self.met if each.came]

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "schedule": self.schedule.to_json()}

    @staticmethod
    def of_json(obj: dict[str, Any]) -> Decided:
        met = tuple(DeathRecord(**each) for each in obj["met"])
        return Decided(**{**obj, "met": met, "schedule": Schedule.of_json(obj["schedule"])})


class MatrixReport:
    """The outcomes of one seed's schedules, in the file at `path` where there is one."""

    def __init__(self, seed: int, path: Path | None, *, resumed: bool) -> None:
        self.seed = seed
        self.path = path
        self.decided: dict[str, Decided] = {}
        self.seconds = 0.0
        if resumed and path is not None and path.exists():
            kept = json.loads(path.read_text())
            if kept["seed"] != seed:
                raise ValueError(
                    f"{path} is the report of seed {kept['seed']}, not of {seed}; give another file"
                )
            self.seconds = 60 * kept["minutes"]
            self.decided = {each["schedule"]["name"]: Decided.of_json(each) for each in kept["outcomes"]}

    def is_decided(self, schedule: Schedule) -> bool:
        """Whether this very schedule was run: failpoints that were added since make others of the same names."""
        known = self.decided.get(schedule.name)
        return known is not None and known.schedule == schedule

    def add(self, decided: Decided, seconds: float) -> None:
        """Keep an outcome; `seconds` is how long the parts have taken until now."""
        self.decided[decided.schedule.name] = decided
        self.write(seconds)

    def write(self, seconds: float) -> None:
        if self.path is not None:
            text = json.dumps(self.to_json(seconds), indent=1)
            LocalFileIO().write_bytes(str(self.path.absolute()), text.encode())

    @property
    def wrong(self) -> list[Decided]:
        return [each for each in self.decided.values() if each.error is not None]

    def facts(self, seconds: float, planned: Sequence[Schedule] = ()) -> dict[str, object]:
        """What is told of all schedules together; `planned` are those that were to be run."""
        every = list(self.decided.values())
        orphans: Counter[str] = sum((Counter(each.orphans) for each in every), Counter())
        return {
            "seed": self.seed,
            "schedules": len(every),
            "not run yet": sum(not self.is_decided(each) for each in planned),
            "wrong": len(self.wrong),
            "deaths": sum(len(each.came) for each in every),
            "at random times": sum(met.who == RANDOM for each in every for met in each.came),
            "in a recovery": sum(self.again().values()),
            "not reached": sum(self.missed().values()),
            "checkpoints": sum(each.checkpoints for each in every),
            "rows compared": sum(each.rows for each in every),
            "orphans of the dead": ", ".join(f"{count} {kind}" for kind, count in sorted(orphans.items()))
            or "none",
            "minutes": round(seconds / 60, 1),
        }

    def who(self, failpoint: str) -> Counter[str]:
        """Who died at a failpoint, how often."""
        return Counter(
            met.who for each in self.decided.values() for met in each.came if met.failpoint == failpoint
        )

    def again(self) -> Counter[str]:
        """Deaths of drivers that were recovering from one, by failpoint."""
        return _counted(met for each in self.decided.values() for met in each.met[1:] if met.came)

    def missed(self) -> Counter[str]:
        """Failpoints that a driver was to die at and never reached."""
        return _counted(met for each in self.decided.values() for met in each.met if not met.came)

    def streams(self) -> dict[str, tuple[int, int]]:
        """Schedules and deaths of each kind of stream."""
        schedules = Counter(each.schedule.stream for each in self.decided.values())
        deaths = Counter(each.schedule.stream for each in self.decided.values() for _ in each.came)
        return {name: (schedules[name], deaths[name]) for name in sorted(schedules)}

    def to_json(self, seconds: float) -> dict[str, Any]:
        again, missed = self.again(), self.missed()
        return {
            **self.facts(seconds),
            "by failpoint": {
                name: {**self.who(name), "in a recovery": again[name], "not reached": missed[name]}
                for name in REGISTERED
            },
            "failed": [{"schedule": str(each.schedule), "error": each.error} for each in self.wrong],
            "outcomes": [each.to_json() for each in self.decided.values()],
        }


def _counted(met: Iterable[DeathRecord]) -> Counter[str]:
    return Counter(each.failpoint for each in met)
