"""The result of `streamlake check`: a list of points, each right, a warning, an error, or unknown."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import Enum

from streamlake.errors import StreamlakeError


class Verdict(str, Enum):
    """The result of a point.

    An error would stop the pipeline or lose rows, a warning may; a note is worth knowing. Unknown means that
    an earlier error hides the answer.
    """

    RIGHT = "ok"
    NOTE = "note"
    WARNING = "warning"
    ERROR = "error"
    UNKNOWN = "unknown"


@dataclass(frozen=True)
class Point:
    """One thing that was checked.

    `about` names it (kafka, table, ...), `message` says what was found and how to correct it.
    """

    about: str
    verdict: Verdict
    message: str


@dataclass
class Points:
    """Collects points in the order in which they are found."""

    found: list[Point] = field(default_factory=list)

    def right(self, about: str, message: str) -> None:
        """Add a point that is right."""
        self.found.append(Point(about, Verdict.RIGHT, message))

    def note(self, about: str, message: str) -> None:
        """Add what is worth knowing and not wrong."""
        self.found.append(Point(about, Verdict.NOTE, message))

    def warning(self, about: str, message: str) -> None:
        """Add a warning."""
        self.found.append(Point(about, Verdict.WARNING, message))

    def error(self, about: str, message: str) -> None:
        """Add an error."""
        self.found.append(Point(about, Verdict.ERROR, message))

    def unknown(self, about: str, message: str) -> None:
        """Add a point that could not be checked."""
        self.found.append(Point(about, Verdict.UNKNOWN, message))

    @contextmanager
    def errors(self, about: str) -> Iterator[None]:
        """Context manager: an error that is raised inside ends the block and becomes a point."""
        try:
            yield
        except (StreamlakeError, OSError) as error:
            self.error(about, str(error))

    @property
    def is_right(self) -> bool:
        """Whether no point is an error."""
        return all(point.verdict is not Verdict.ERROR for point in self.found)

    def count(self, verdict: Verdict) -> int:
        """How many points came out like this."""
        return sum(point.verdict is verdict for point in self.found)
