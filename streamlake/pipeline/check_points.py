"""What `streamlake check` has looked at, point by point: each is right, or a warning, or an error, or could not be told."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import Enum

from streamlake.errors import StreamlakeError


class Verdict(str, Enum):
    """How a point came out. Errors are what the pipeline would stop with; unknown is what an earlier error hides."""

    RIGHT = "ok"
    WARNING = "warning"
    ERROR = "error"
    UNKNOWN = "unknown"


@dataclass(frozen=True)
class Point:
    """`about` is what was looked at (kafka, table, ...), `told` what was found, and what to do where it is wrong."""

    about: str
    verdict: Verdict
    told: str


@dataclass
class Points:
    """Collects points in the order in which they are found."""

    found: list[Point] = field(default_factory=list)

    def right(self, about: str, told: str) -> None:
        self.found.append(Point(about, Verdict.RIGHT, told))

    def warning(self, about: str, told: str) -> None:
        self.found.append(Point(about, Verdict.WARNING, told))

    def error(self, about: str, told: str) -> None:
        self.found.append(Point(about, Verdict.ERROR, told))

    def unknown(self, about: str, told: str) -> None:
        self.found.append(Point(about, Verdict.UNKNOWN, told))

    @contextmanager
    def errors(self, about: str) -> Iterator[None]:
        """An error that is raised inside ends the block and becomes a point."""
        try:
            yield
        except (StreamlakeError, OSError) as error:
            self.error(about, str(error))

    @property
    def is_right(self) -> bool:
        return all(point.verdict is not Verdict.ERROR for point in self.found)

    def count(self, verdict: Verdict) -> int:
        return sum(point.verdict is verdict for point in self.found)
