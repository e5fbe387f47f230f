"""`streamlake maintain`: keeps a table healthy, and says what that has changed."""

from __future__ import annotations

import shlex
import sys
from dataclasses import asdict

from rich.console import Group, RenderableType
from rich.text import Text

from streamlake.cli.arguments import parse_catalog
from streamlake.cli.views.rendering import facts, grid, human_count, human_size, human_time, json_text, show
from streamlake.cli.views.task_progress import step_progress
from streamlake.maintain.ages import before_ms
from streamlake.maintain.care import CareNeeded, care_needed
from streamlake.maintain.deletes.delete_conversion import ConvertedDeletes
from streamlake.maintain.expire import Expiry
from streamlake.maintain.manifest_rewrite import RewrittenManifests
from streamlake.maintain.old_metadata import OldMetadata
from streamlake.maintain.orphans import Orphans
from streamlake.maintain.rejects_retention import DroppedRejects
from streamlake.maintain.upkeep import (
    ACTIONS,
    DELETES,
    EXPIRE,
    MANIFESTS,
    METADATA,
    ORPHANS,
    REJECTS,
    Upkeep,
    UpkeepSettings,
    maintain,
)
from streamlake.read.metadata_tables import Row
from streamlake.read.natural_values import instant
from streamlake.tables import load_table
from streamlake.wording import counted

_ORPHANS_SHOWN = 10
_PLAN = {
    REJECTS: "drop days of rejects that are too old, if it is a rejects table that says so",
    DELETES: "convert equality deletes, and merge what is deleted by position",
    MANIFESTS: "rewrite manifests by partition",
    EXPIRE: "expire old snapshots, and delete the files that only they need",
    METADATA: "delete metadata files that have left the metadata log",
    ORPHANS: "look for files that nothing refers to",
}


def run(
    location: str,
    *,
    only: str | None,
    dry_run: bool,
    yes: bool,
    older_than: str | None,
    retain_last: int | None,
    orphan_age: str | None,
    rejects_age: str | None,
    branch: str,
    as_json: bool,
    catalog: str | None,
) -> int:
    """Maintain a table; returns the exit code. Raises what the actions raise."""
    settings = UpkeepSettings(
        only=UpkeepSettings.actions((only or "").split(",")),
        branch=branch,
        older_than_ms=before_ms(older_than, "--older-than"),
        retain_last=retain_last,
        orphans_before_ms=before_ms(orphan_age, "--orphan-age"),
        rejects_before_ms=before_ms(rejects_age, "--rejects-age"),
        delete_orphans=yes,
        dry_run=dry_run,
    )
    table = load_table(location, catalog=parse_catalog(catalog)).table
    if not as_json:
        show(plan(table.name, settings))
    with step_progress("maintain") as on_progress:
        done = maintain(table, settings, on_progress, lambda action: on_progress(_PLAN[action], 0, None))
    needed = care_needed(table)
    if as_json:
        sys.stdout.write(json_text(content(table.location, done, needed)) + "\n")
    else:
        show(view(location, done, needed))
    return 0


def plan(name: str, settings: UpkeepSettings) -> RenderableType:
    """What is about to be done."""
    pairs = [(action, _PLAN[action]) for action in settings.only or ACTIONS]
    return Group(facts([("table", name), *pairs]), Text())


def content(location: str, done: Upkeep, needed: tuple[CareNeeded, ...]) -> Row:
    """A report, ready for JSON."""
    expiry, orphans = done.expiry, done.orphans
    return {
        "location": location,
        "dry_run": done.dry_run,
        "before": asdict(done.before),
        "after": asdict(done.after),
        REJECTS: None if done.rejects is None else asdict(done.rejects),
        DELETES: None if done.deletes is None else asdict(done.deletes),
        MANIFESTS: None if done.manifests is None else asdict(done.manifests),
        EXPIRE: None
        if expiry is None
        else {
            "snapshots": list(expiry.snapshots),
            "refs": list(expiry.refs),
            "held": list(expiry.held),
            "kept": expiry.kept,
            "data_files": len(expiry.files.data_files),
            "delete_files": len(expiry.files.delete_files),
            "manifests": len(expiry.files.manifests),
            "manifest_lists": len(expiry.files.manifest_lists),
            "statistics": len(expiry.files.statistics),
            "bytes": expiry.bytes,
            "deleted": expiry.deleted.files,
        },
        METADATA: None if done.metadata is None else asdict(done.metadata),
        ORPHANS: None
        if orphans is None
        else {
            "files": [
                {**asdict(orphan), "modified_at": instant(orphan.modified_ms)} for orphan in orphans.orphans
            ],
            "bytes": orphans.bytes,
            "looked_at": orphans.looked_at,
            "not_listed": list(orphans.not_listed),
            "deleted": orphans.deleted.files,
            "dry_run": orphans.dry_run,
        },
        "left_out": done.left_out,
        "care_needed": [asdict(each) for each in needed],
    }


def view(location: str, done: Upkeep, needed: tuple[CareNeeded, ...]) -> RenderableType:
    """A report for a terminal: what was done, the figures before and after, what the table still needs."""
    pairs = []
    if done.rejects is not None:
        pairs.append((REJECTS, _rejects(done.rejects)))
    if done.deletes is not None:
        pairs.append((DELETES, _deletes(done.deletes)))
    if done.manifests is not None:
        pairs.append((MANIFESTS, _manifests(done.manifests)))
    if done.expiry is not None:
        pairs.append((EXPIRE, _expiry(done.expiry)))
    if done.metadata is not None:
        pairs.append((METADATA, _metadata(done.metadata)))
    if done.orphans is not None:
        pairs.append((ORPHANS, _orphans(done.orphans, location)))
    pairs += [
        (action, f"left out: {why} (--older-than, --retain-last, --only)")
        for action, why in done.left_out.items()
    ]
    parts: list[RenderableType] = []
    if done.dry_run:
        parts.append(Text("dry run: nothing was changed", style="bold"))
    parts.append(facts(pairs))
    if not done.dry_run:
        parts += [Text(), _figures(done)]
    if done.orphans is not None and done.orphans.orphans:
        shown = done.orphans.orphans[:_ORPHANS_SHOWN]
        columns = [("modified", "left"), ("kind", "left"), ("size", "right"), ("path", "left")]
        rows = [
            (human_time(instant(each.modified_ms)), each.kind, human_size(each.size), each.path)
            for each in shown
        ]
        more = len(done.orphans.orphans) - len(shown)
        title = "Orphans" + (f" (the oldest {len(shown)}; --json lists all)" if more else "")
        parts += [Text(), grid(title, columns, rows)]
    for each in needed:
        parts += [Text(), Text(f"needs care: {each.kind}", style="yellow")]
        parts.append(facts([("  what", each.what), ("  fix", each.command)]))
    return Group(*parts)


def _figures(done: Upkeep) -> RenderableType:
    before, after = done.before, done.after
    rows = [
        ("snapshots", human_count(before.snapshots), human_count(after.snapshots)),
        ("manifests", human_count(before.manifests), human_count(after.manifests)),
        ("manifests' bytes", human_size(before.manifest_bytes), human_size(after.manifest_bytes)),
        ("metadata file", human_size(before.metadata_bytes or 0), human_size(after.metadata_bytes or 0)),
    ]
    return grid("", [("", "left"), ("before", "right"), ("after", "right")], rows)


def _rejects(done: DroppedRejects) -> str:
    if not done.files:
        return f"none of before {done.before}"
    what = f"{counted(done.rows, 'record')} of before {done.before} ({human_size(done.bytes)})"
    return f"would drop {what}" if done.dry_run else f"dropped {what}; expiry deletes the files"


def _deletes(done: ConvertedDeletes) -> str:
    kept = f"; {counted(done.kept, 'equality delete')} left for the next time" if done.kept else ""
    if not done.removed and not done.added:
        return f"nothing to do{kept}"
    kinds = [
        counted(done.equality_deletes, "equality delete file"),
        counted(done.position_deletes, "position delete file"),
        counted(done.deletion_vectors, "deletion vector"),
    ]
    what = f"{', '.join(kinds)} ({human_size(done.bytes_before)}), {done.dangling:,} of them of nothing"
    if done.added is None:
        return f"would look at {counted(done.data_files, 'data file')} to replace {what}"
    new = f"{done.added:,} ({human_size(done.bytes_after or 0)})"
    return f"replaced {what}, by {new}; {counted(done.rows or 0, 'row')} found by key{kept}"


def _manifests(done: RewrittenManifests) -> str:
    if not done.rewritten:
        return f"nothing to do, {counted(done.before, 'manifest')}"
    what = f"{done.rewritten:,} of {counted(done.before, 'manifest')} ({human_size(done.bytes_before)})"
    if done.added is None:
        return f"would rewrite {what}"
    return f"rewrote {what} into {done.added:,} ({human_size(done.bytes_after or 0)})"


def _expiry(done: Expiry) -> str:
    if not done.snapshots and not done.refs:
        text = f"nothing to do, {counted(done.kept, 'snapshot')}"
    else:
        files = done.files
        others = len(files.manifests) + len(files.manifest_lists) + len(files.statistics)
        names = f", {', '.join(done.refs)}" if done.refs else ""
        text = (
            f"{'would expire' if done.dry_run else 'expired'} "
            f"{counted(len(done.snapshots), 'snapshot')}{names}: "
            f"{counted(len(files.data_files), 'data file')}, "
            f"{counted(len(files.delete_files), 'delete file')}, {counted(others, 'metadata file')}"
            f"{f' of {human_size(done.bytes)}' if done.bytes else ''}; {done.kept:,} stay"
        )
    return text + (f"; {len(done.held):,} held for streams" if done.held else "")


def _metadata(done: OldMetadata) -> str:
    what = f"{counted(done.files, 'old metadata file')} of {human_size(done.bytes)}"
    if not done.files:
        return "nothing to do"
    if not done.allows:
        return f"{what}, kept: write.metadata.delete-after-commit.enabled is not true"
    return f"would delete {what}" if done.dry_run else f"deleted {what}"


def _orphans(done: Orphans, location: str) -> str:
    where = f"; not looked for in {', '.join(done.not_listed)}" if done.not_listed else ""
    what = f"{counted(len(done.orphans), 'file')} of {human_size(done.bytes)} that nothing refers to"
    if not done.orphans:
        return f"none among {counted(done.looked_at, 'file')}{where}"
    if not done.dry_run:
        return f"deleted {what}{where}"
    again = f"streamlake maintain {shlex.quote(location)} --only orphans --yes"
    return f"{what}; nothing was deleted, `{again}` does it{where}"
