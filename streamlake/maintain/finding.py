"""What is wrong somewhere, as a value: how bad, what, where, and what to do about it.

Made by the checks of this room and of `pipeline`, shown by `streamlake doctor`, compared by tests. Invariant: a healthy
table has no finding that is a violation, however it was written and by whom.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum

SHOWN_PER_CHECK = 20


class Severity(str, Enum):
    """ERROR: rows are lost, doubled or unreadable, or will be. WARNING: it costs, or will be in somebody's way.
    NOTE: worth knowing, and as it should be."""

    ERROR = "error"
    WARNING = "warning"
    NOTE = "note"


@dataclass(frozen=True)
class Finding:
    """One thing that was found. `check` is its kind, such as `file-missing`; `where` a path, a snapshot or a property;
    `what` a sentence, `fix` the command or the action that puts it right."""

    severity: Severity
    check: str
    where: str
    what: str
    fix: str

    @property
    def is_violation(self) -> bool:
        return self.severity is not Severity.NOTE


class Findings:
    """Gathers findings in the order in which they come, so many of each kind; the rest of a kind is counted."""

    def __init__(self, shown: int = SHOWN_PER_CHECK) -> None:
        self._shown = shown
        self._found: list[Finding] = []
        self._count: Counter[str] = Counter()
        self._last: dict[str, Finding] = {}

    def add(self, finding: Finding) -> None:
        self._count[finding.check] += 1
        if self._count[finding.check] <= self._shown:
            self._found.append(finding)
        self._last[finding.check] = finding

    def extend(self, findings: Iterable[Finding]) -> None:
        for finding in findings:
            self.add(finding)

    def error(self, check: str, where: str, what: str, fix: str) -> None:
        self.add(Finding(Severity.ERROR, check, where, what, fix))

    def warning(self, check: str, where: str, what: str, fix: str) -> None:
        self.add(Finding(Severity.WARNING, check, where, what, fix))

    def note(self, check: str, where: str, what: str, fix: str = "nothing to do") -> None:
        self.add(Finding(Severity.NOTE, check, where, what, fix))

    @property
    def has_errors(self) -> bool:
        return any(finding.severity is Severity.ERROR for finding in self._found)

    def all(self) -> tuple[Finding, ...]:
        """What was found; of a kind with too many, one more finding that tells how many are left out."""
        left_out = []
        for check, count in self._count.items():
            if count > self._shown:
                last = self._last[check]
                left_out.append(
                    Finding(
                        last.severity,
                        check,
                        "and others",
                        f"{count - self._shown:,} more of this kind",
                        last.fix,
                    )
                )
        return (*self._found, *left_out)
