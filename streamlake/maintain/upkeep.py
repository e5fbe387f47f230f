"""The upkeep of one table: its actions in the order in which each helps the next, and a report.

    rejects -> compact -> deletes -> manifests -> expire -> metadata -> orphans

Invariants: an action that fails leaves the table whole, and history that nobody has agreed to lose stays:
snapshots expire where the table's `history.expire.*`, or an argument, says so, or where it is the action that
was asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace

from streamlake.errors import InvalidOptionError
from streamlake.maintain.care import Figures, figures
from streamlake.maintain.compact.compact_options import CompactSettings
from streamlake.maintain.compact.compaction import Compaction, rewrite_data_files
from streamlake.maintain.deletes.delete_conversion import ConvertedDeletes, convert_deletes
from streamlake.maintain.expire import Expiry, expire_snapshots
from streamlake.maintain.manifest_rewrite import RewrittenManifests, rewrite_manifests
from streamlake.maintain.old_metadata import OldMetadata, remove_old_metadata
from streamlake.maintain.orphans import Orphans, remove_orphans
from streamlake.maintain.rejects_retention import (
    DroppedRejects,
    drop_old_rejects,
    is_rejects,
    rejects_before_ms,
)
from streamlake.maintain.retention import MAX_SNAPSHOT_AGE, MIN_SNAPSHOTS, agrees_to_expire
from streamlake.on_progress import OnProgress, unseen
from streamlake.options import suggestion
from streamlake.spec.metadata.snapshot import MAIN_BRANCH
from streamlake.table.table import Table

REJECTS, COMPACT, DELETES, MANIFESTS = "rejects", "compact", "deletes", "manifests"
EXPIRE, METADATA, ORPHANS = "expire", "metadata", "orphans"
ACTIONS = (REJECTS, COMPACT, DELETES, MANIFESTS, EXPIRE, METADATA, ORPHANS)
"""All actions, in their order."""


@dataclass(frozen=True)
class UpkeepSettings:
    """What is to be done. `only` empty: everything. Times are in epoch milliseconds; None: the actions' own
    defaults. Without `delete_orphans`, orphans are listed and left. Branch and dry run of `compact` are those
    given here.
    """

    only: tuple[str, ...] = ()
    branch: str = MAIN_BRANCH
    older_than_ms: int | None = None
    retain_last: int | None = None
    orphans_before_ms: int | None = None
    rejects_before_ms: int | None = None
    delete_orphans: bool = True
    dry_run: bool = False
    compact: CompactSettings = field(default_factory=CompactSettings)

    @staticmethod
    def actions(only: Iterable[str]) -> tuple[str, ...]:
        """The actions of these names, in their order. Raises InvalidOptionError for an unknown one."""
        names = [name.strip() for name in only if name.strip()]
        for name in names:
            if name not in ACTIONS:
                near = suggestion(name, ACTIONS)
                hint = f"did you mean '{near}'?" if near else f"there are {', '.join(ACTIONS)}"
                raise InvalidOptionError(f"there is no action '{name}' of maintenance; {hint}")
        return tuple(name for name in ACTIONS if name in names)


@dataclass(frozen=True)
class Upkeep:
    """What was done to a table, or with `dry_run` would be; None for an action that was not asked for.

    `left_out` says why an action of the default ones was left out.
    """

    before: Figures
    after: Figures
    rejects: DroppedRejects | None
    compaction: Compaction | None
    deletes: ConvertedDeletes | None
    manifests: RewrittenManifests | None
    expiry: Expiry | None
    metadata: OldMetadata | None
    orphans: Orphans | None
    left_out: dict[str, str]
    dry_run: bool


def maintain(
    table: Table,
    settings: UpkeepSettings,
    on_progress: OnProgress = unseen,
    on_start: Callable[[str], None] = lambda action: None,
) -> Upkeep:
    """Do what `settings` says. `on_start` is called with each action before it begins.

    Raises the errors of the actions; what was done before one stays done.
    """
    chosen = UpkeepSettings.actions(settings.only) or ACTIONS
    table.refresh()
    before = figures(table)
    left_out: dict[str, str] = {}
    if EXPIRE in chosen and not _may_expire(table, settings):
        chosen = tuple(action for action in chosen if action != EXPIRE)
        left_out[EXPIRE] = (
            f"the table's properties say neither {MAX_SNAPSHOT_AGE} nor {MIN_SNAPSHOTS}: set them, or say "
            "how old snapshots become"
        )
    if REJECTS in chosen and not _may_drop_rejects(table, settings):
        chosen = tuple(action for action in chosen if action != REJECTS)
    dry_run = settings.dry_run
    rejects = compaction = deletes = manifests = expiry = metadata = orphans = None
    for action in chosen:
        on_start(action)
        if action == REJECTS:
            rejects = drop_old_rejects(table, older_than_ms=settings.rejects_before_ms, dry_run=dry_run)
        elif action == COMPACT:
            compact = replace(settings.compact, branch=settings.branch, dry_run=dry_run)
            compaction = rewrite_data_files(table, compact, on_progress)
        elif action == DELETES:
            deletes = convert_deletes(table, branch=settings.branch, dry_run=dry_run, on_progress=on_progress)
        elif action == MANIFESTS:
            manifests = rewrite_manifests(table, branch=settings.branch, dry_run=dry_run)
        elif action == EXPIRE:
            expiry = expire_snapshots(
                table,
                older_than_ms=settings.older_than_ms,
                retain_last=settings.retain_last,
                dry_run=dry_run,
                on_progress=on_progress,
            )
        elif action == METADATA:
            metadata = remove_old_metadata(table, dry_run=dry_run, on_progress=on_progress)
        else:
            orphans = remove_orphans(
                table,
                older_than_ms=settings.orphans_before_ms,
                dry_run=dry_run or not settings.delete_orphans,
                on_progress=on_progress,
            )
    table.refresh()
    return Upkeep(
        before,
        figures(table),
        rejects,
        compaction,
        deletes,
        manifests,
        expiry,
        metadata,
        orphans,
        left_out,
        dry_run,
    )


def _may_drop_rejects(table: Table, settings: UpkeepSettings) -> bool:
    if REJECTS in settings.only:
        return True
    agreed = settings.rejects_before_ms is not None or rejects_before_ms(table) is not None
    return agreed and is_rejects(table)


def _may_expire(table: Table, settings: UpkeepSettings) -> bool:
    asked = EXPIRE in settings.only or settings.older_than_ms is not None or settings.retain_last is not None
    return asked or agrees_to_expire(table.properties)
