"""Lineage findings: contradictions between table, pipeline and checkpoint directory, with their ways out.

The committer looks for them on every commit, the sink when it starts, and commands when they run. Users see
them as a LineageError. Invariant: a finding never skips rows or writes them twice by itself; only a person
chooses a way out.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from streamlake.errors import LineageError
from streamlake.options import ShownFields, shown
from streamlake.spec.metadata.snapshot import MAIN_BRANCH

CatalogOption = str | Mapping[str, str] | None
_SHOWN = {"type", "warehouse", "name"}


class Kind(str, Enum):
    """The kinds of findings. The value is the name that doctor and tests use."""

    OTHER_JOB = "other-job"
    ROLLED_BACK = "rolled-back"
    PROPERTY_LOST = "property-lost"
    PROPERTY_BEHIND = "property-behind"
    CHECKPOINT_OLDER = "checkpoint-older"
    DIVERGED = "diverged"
    TABLE_OLDER = "table-older"
    TABLE_REPLACED = "table-replaced"
    TABLE_GONE = "table-gone"
    MARKERS_LOST = "marks-lost"
    OTHER_TABLE = "other-table"
    GAP = "gap"
    TORN_LOG = "torn-log"


class Way(str, Enum):
    """What `streamlake recover` can do. The value is its option."""

    ADOPT = "--adopt"
    FORK = "--fork"
    REWIND = "--rewind-to"
    ROLLBACK = "--rollback-table"
    REMOVE_TORN = "--remove-torn"
    RESUME = "--resume-from-table"


@dataclass(frozen=True)
class WayOut:
    """One way out of a finding, and what it does to the rows, in words. `checkpoint_id` is for Way.REWIND."""

    way: Way
    effect: str
    checkpoint_id: int | None = None


@dataclass(frozen=True)
class Finding:
    """One contradiction.

    `found` says what is there, `consequence` what continuing would do ("Continuing would ..."), `by_hand`
    what can be done without a command.
    """

    kind: Kind
    found: str
    consequence: str
    ways: tuple[WayOut, ...] = ()
    by_hand: str = ""


@dataclass(frozen=True, repr=False)
class RecoverCommand(ShownFields):
    """The command line of `streamlake recover` for one pipeline. None stands for what is not known here."""

    table: str
    pipeline: str
    branch: str = MAIN_BRANCH
    catalog: CatalogOption = None
    checkpoint_location: str | None = None

    def text(self, way: WayOut) -> str:
        """The command that takes `way`, ready to paste into a shell."""
        words = ["streamlake", "recover", self.table]
        if not self.pipeline.startswith(f"{self.table}:"):  # an unnamed stream has a generated name
            words += ["--pipeline", self.pipeline]
        if self.branch != MAIN_BRANCH:
            words += ["--branch", self.branch]
        if self.catalog is not None:
            words += ["--catalog", catalog_text(self.catalog)]
        words += ["--checkpoint-location", self.checkpoint_location or "DIRECTORY"]
        if way.checkpoint_id is None:
            words.append(way.way.value)
        else:
            words.append(f"{way.way.value}={way.checkpoint_id}")
        return shlex.join(words)

    def offer(self, way: WayOut) -> str:
        """The command for one way out, and what it does to the rows."""
        return f"`{self.text(way)}` {way.effect}"

    def offers(self, finding: Finding) -> list[str]:
        """Every way out of a finding; the one without a command comes last."""
        return [*map(self.offer, finding.ways), *([finding.by_hand] if finding.by_hand else [])]


def catalog_text(catalog: str | Mapping[str, str]) -> str:
    """A catalog as the command line takes it. The user has to fill in properties that may be secret."""
    if isinstance(catalog, str):
        return catalog
    parts = [f"{name}={shown(value)}" for name, value in catalog.items() if name in _SHOWN]
    return ",".join([*parts, *(f"{name}=..." for name in catalog if name not in _SHOWN)])


def explained(finding: Finding, command: RecoverCommand) -> str:
    """The message for a finding: a line with what was found, one with what continuing would do, and one for
    each way out, with its command.
    """
    ways = command.offers(finding)
    text = f"{finding.found}.\nContinuing would {finding.consequence}."
    if not ways:
        return text
    if not finding.ways:
        return f"{text} To go on, {finding.by_hand}"
    numbered = "".join(f"\n  ({number}) {way}" for number, way in enumerate(ways, 1))
    return (
        f"{text}\nStop every driver of the pipeline, then take one of these ways out (each says what it will "
        f"do first, and does it with --yes):{numbered}"
    )


def lineage_error(finding: Finding, command: RecoverCommand) -> LineageError:
    """The error that stops the job because of a finding."""
    return LineageError(explained(finding, command))
