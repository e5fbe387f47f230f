"""What one run of maintenance on one table is asked for, and what it reports: values that cross processes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from streamlake.catalog.open import CatalogOption
from streamlake.maintain.background.lease import Lease
from streamlake.maintain.care import Figures

_SHOWN = (
    ("data_files", "data files"),
    ("delete_files", "delete files"),
    ("manifests", "manifests"),
    ("snapshots", "snapshots"),
)


@dataclass(frozen=True)
class RunRequest:
    """The table, which actions, and who asks. `lease_seconds`: see `lease`; `compact`, `max_bytes`: see
    MaintenanceSettings.
    """

    table: str
    catalog: CatalogOption
    branch: str
    actions: tuple[str, ...]
    holder: str
    lease_seconds: int
    compact: Mapping[str, str] = field(default_factory=dict)
    max_bytes: int | None = None

    def to_text(self) -> str:
        """One line of JSON."""
        catalog = dict(self.catalog) if isinstance(self.catalog, Mapping) else self.catalog
        return json.dumps({**vars(self), "catalog": catalog, "compact": dict(self.compact)})

    @staticmethod
    def from_text(text: str) -> RunRequest:
        """The inverse of `to_text`."""
        obj: dict[str, Any] = json.loads(text)
        return RunRequest(**{**obj, "actions": tuple(obj["actions"])})


@dataclass(frozen=True)
class ActionEnding:
    """How an action ended: after how many seconds, with which error, or why it was left out."""

    action: str
    seconds: float = 0.0
    error: str | None = None
    left_out: str | None = None


@dataclass(frozen=True)
class RunReport:
    """What a run has done. `held`: nothing, because another pipeline maintains the table. `error`: nothing,
    because the table could not be opened, or the process ended.
    """

    endings: tuple[ActionEnding, ...] = ()
    before: Figures | None = None
    after: Figures | None = None
    held: Lease | None = None
    error: str | None = None

    @property
    def first_error(self) -> str | None:
        """The first error of the run; None where all went well."""
        errors = (f"{each.action}: {each.error}" for each in self.endings if each.error)
        return self.error or next(errors, None)

    @property
    def done(self) -> tuple[str, ...]:
        """The actions that have ended well."""
        return tuple(each.action for each in self.endings if each.error is None and each.left_out is None)

    @property
    def in_words(self) -> str:
        """What has become fewer or more, such as `data files 320 to 12`."""
        if self.before is None or self.after is None:
            return ""
        changes = []
        for name, words in _SHOWN:
            old, new = getattr(self.before, name), getattr(self.after, name)
            if old != new:
                changes.append(f"{words} {_count(old)} to {_count(new)}")
        return ", ".join(changes) or "nothing to do"

    def to_text(self) -> str:
        """One line of JSON."""
        return json.dumps(asdict(self))

    @staticmethod
    def from_text(text: str) -> RunReport:
        """The inverse of `to_text`. Raises ValueError, TypeError or KeyError for anything else."""
        obj: dict[str, Any] = json.loads(text)
        figures = {name: None if obj[name] is None else Figures(**obj[name]) for name in ("before", "after")}
        held = None if obj["held"] is None else Lease(**obj["held"])
        endings = tuple(ActionEnding(**each) for each in obj["endings"])
        return RunReport(endings, figures["before"], figures["after"], held, obj["error"])


def _count(value: int | None) -> str:
    return "unknown" if value is None else f"{value:,}"
