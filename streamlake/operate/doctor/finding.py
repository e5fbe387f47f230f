"""A finding of the doctor: how bad it is, what was found, where, and how to correct it.

The doctor's checks make findings, `streamlake doctor` shows them, tests compare them. Invariant: a healthy
table has no finding that is a violation, however it was written and by whom.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum

SHOWN_PER_CHECK = 20


class Severity(str, Enum):
    """How bad a finding is.

    ERROR: rows are lost, duplicated or unreadable, or will be. WARNING: it costs something or will cause
    trouble. NOTE: worth knowing, and as it should be.
    """

    ERROR = "error"
    WARNING = "warning"
    NOTE = "note"


@dataclass(frozen=True)
class Finding:
    """One thing that was found.

    `check` is its kind, such as `file-missing`. `where` is a path, a snapshot or a property. `what` is a
    sentence, `fix` the command or the action that corrects it.
    """

    severity: Severity
    check: str
    where: str
    what: str
    fix: str

    @property
    def is_violation(self) -> bool:
        """Whether it is an error or a warning."""
        return self.severity is not Severity.NOTE


class Findings:
    """Collects findings in their order, a limited number of each kind; the rest of a kind is only counted."""

    def __init__(self, shown: int = SHOWN_PER_CHECK) -> None:
        self._shown = shown
        self._found: list[Finding] = []
        self._count: Counter[str] = Counter()
        self._last: dict[str, Finding] = {}

    def add(self, finding: Finding) -> None:
        """Add a finding, or only count it where its kind has many already."""
        self._count[finding.check] += 1
        if self._count[finding.check] <= self._shown:
            self._found.append(finding)
        self._last[finding.check] = finding

    def extend(self, findings: Iterable[Finding]) -> None:
        """Add several findings."""
        for finding in findings:
            self.add(finding)

    def error(self, check: str, where: str, what: str, fix: str) -> None:
        """Add an error."""
        self.add(Finding(Severity.ERROR, check, where, what, fix))

    def warning(self, check: str, where: str, what: str, fix: str) -> None:
        """Add a warning."""
        self.add(Finding(Severity.WARNING, check, where, what, fix))

    def note(self, check: str, where: str, what: str, fix: str = "nothing to do") -> None:
        """Add a note."""
        self.add(Finding(Severity.NOTE, check, where, what, fix))

    @property
    def has_errors(self) -> bool:
        """Whether one of the findings is an error."""
        return any(finding.severity is Severity.ERROR for finding in self._found)

    def all(self) -> tuple[Finding, ...]:
        """The findings; a kind with too many has one more finding, which says how many are left out."""
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
