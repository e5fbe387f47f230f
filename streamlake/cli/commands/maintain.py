"""`streamlake maintain`: keeps a table healthy, and says what that has changed."""

from __future__ import annotations

import os
import platform
import re
import shlex
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace

from rich.console import Group, RenderableType
from rich.text import Text

from streamlake.catalog.open import CatalogOption
from streamlake.cli.arguments import is_pipeline_file, option_pairs, parse_catalog
from streamlake.cli.views.rendering import facts, grid, human_count, human_size, human_time, json_text, show
from streamlake.cli.views.task_progress import step_progress
from streamlake.errors import InvalidOptionError, StreamlakeError
from streamlake.maintain.ages import before_ms
from streamlake.maintain.background.lease import take_lease
from streamlake.maintain.care import CareNeeded, care_needed
from streamlake.maintain.compact.compact_options import CompactSettings
from streamlake.maintain.compact.compaction import Compaction, FileTotals
from streamlake.maintain.deletes.delete_conversion import ConvertedDeletes
from streamlake.maintain.expire import Expiry
from streamlake.maintain.manifest_rewrite import RewrittenManifests
from streamlake.maintain.old_metadata import OldMetadata
from streamlake.maintain.orphans import Orphans
from streamlake.maintain.rejects_retention import DroppedRejects
from streamlake.maintain.upkeep import (
    ACTIONS,
    COMPACT,
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
from streamlake.operate.upkeep.upkeep_targets import UpkeepTarget, upkeep_targets
from streamlake.pipeline.definition.pipeline_file import load_pipeline
from streamlake.read.metadata_tables import Row
from streamlake.read.natural_values import instant
from streamlake.spec.metadata.snapshot import MAIN_BRANCH
from streamlake.tables import load_table
from streamlake.wording import counted

_ORPHANS_SHOWN = 10
_FIGURES = (
    ("data_files", "data files", human_count),
    ("bytes", "their bytes", human_size),
    ("records", "their rows", human_count),
    ("delete_files", "delete files", human_count),
    ("deleted_rows", "deleted rows", human_count),
    ("snapshots", "snapshots", human_count),
    ("manifests", "manifests", human_count),
    ("manifest_bytes", "manifests' bytes", human_size),
    ("metadata_bytes", "metadata file", human_size),
)
PLAN = {
    REJECTS: "drop days of rejects that are too old, if it is a rejects table that says so",
    COMPACT: "write small files, and files with many deleted rows, again",
    DELETES: "convert equality deletes, and merge what is deleted by position",
    MANIFESTS: "rewrite manifests by partition",
    EXPIRE: "expire old snapshots, and delete the files that only they need",
    METADATA: "delete metadata files that have left the metadata log",
    ORPHANS: "look for files that nothing refers to",
}


def run(
    what: str,
    *,
    only: str | None,
    dry_run: bool,
    yes: bool,
    older_than: str | None,
    retain_last: int | None,
    orphan_age: str | None,
    rejects_age: str | None,
    branch: str | None,
    strategy: str,
    sort_by: str | None,
    filter: str | None,
    options: list[str],
    watch: bool,
    interval: float,
    as_json: bool,
    catalog: str | None,
) -> int:
    """Maintain a table, or the tables of a pipeline, once or until SIGTERM; returns the exit code.

    Raises what the actions on a table raise; an error of one of several tables is reported at the end.
    """
    round_ = _Round(what, parse_catalog(catalog), branch, as_json=as_json, is_alone=not watch)

    compact = CompactSettings(strategy, _sort_terms(sort_by), filter, option_pairs(options))

    def settings() -> UpkeepSettings:
        return UpkeepSettings(
            only=UpkeepSettings.actions((only or "").split(",")),
            older_than_ms=before_ms(older_than, "--older-than"),
            retain_last=retain_last,
            orphans_before_ms=before_ms(orphan_age, "--orphan-age"),
            rejects_before_ms=before_ms(rejects_age, "--rejects-age"),
            delete_orphans=yes,
            dry_run=dry_run,
            compact=compact,
        )

    if not watch:
        return round_(settings(), lambda: False)
    holder = None if dry_run else f"streamlake maintain --watch on {platform.node()}, process {os.getpid()}"
    with _stop_requested() as stop:
        while not stop.is_set():
            round_(settings(), stop.is_set, None if holder is None else (holder, round(2 * interval)))
            stop.wait(interval)
    return 0


@contextmanager
def _stop_requested() -> Iterator[threading.Event]:
    """An event that SIGINT and SIGTERM set: the action under way is finished, no other begins."""
    stop = threading.Event()
    before = {
        number: signal.signal(number, lambda *_: stop.set()) for number in (signal.SIGINT, signal.SIGTERM)
    }
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class _StoppedError(Exception):
    """Raised between two actions to leave out the rest."""


@dataclass(frozen=True)
class _Round:
    """All tables, once. `is_alone`: an error of the only table is raised."""

    what: str
    catalog: CatalogOption
    branch: str | None
    as_json: bool
    is_alone: bool

    def __call__(
        self,
        settings: UpkeepSettings,
        is_stopped: Callable[[], bool],
        lease: tuple[str, int] | None = None,
    ) -> int:
        """Returns the exit code. `lease`: holder and seconds; a table that another one maintains is left."""
        reports: list[Row] = []
        failed = False
        try:
            targets = self._targets()
            for target in targets:
                if is_stopped():
                    break
                reports.append(self._maintained(target, settings, is_stopped, lease))
                failed = failed or "error" in reports[-1]
        except StreamlakeError as error:
            if self.is_alone:
                raise
            self._failed(self.what, error)
            reports.append({"table": self.what, "error": str(error)})
            failed = True
        if self.as_json:
            is_one = len(reports) == 1 and not is_pipeline_file(self.what)
            shown = reports[0] if is_one else {"tables": reports}
            sys.stdout.write(json_text(shown, indent=2 if self.is_alone else None) + "\n")
            sys.stdout.flush()
        return int(failed)

    def _targets(self) -> list[UpkeepTarget]:
        if not is_pipeline_file(self.what):
            branch = self.branch or MAIN_BRANCH
            return [UpkeepTarget(self.what, load_table(self.what, catalog=self.catalog).table, branch)]
        if self.catalog is not None or self.branch is not None:
            raise InvalidOptionError("a pipeline file names catalogs and branches itself; leave them out")
        targets = upkeep_targets(load_pipeline(self.what))
        if not targets and not self.as_json:
            show(Text(f"{self.what}: none of its tables is there yet"))
        return targets

    def _maintained(
        self,
        target: UpkeepTarget,
        settings: UpkeepSettings,
        is_stopped: Callable[[], bool],
        lease: tuple[str, int] | None,
    ) -> Row:
        table = target.table
        settings = replace(settings, branch=target.branch)

        def begin(action: str) -> None:
            if is_stopped():
                raise _StoppedError
            on_progress(PLAN.get(action, action), 0, None)

        try:
            held = None if lease is None else take_lease(table, *lease)
            if held is not None:
                until = human_time(instant(held.until_ms))
                if not self.as_json:
                    show(Text(f"{target.name}: left to {held.holder} until {until}"))
                return {"table": target.name, "left_to": held.holder, "until": instant(held.until_ms)}
            if not self.as_json:
                show(plan(table.name, settings))
            with step_progress("maintain") as on_progress:
                done = maintain(table, settings, on_progress, begin)
            needed = care_needed(table)
        except _StoppedError:
            return {"table": target.name, "stopped": True}
        except StreamlakeError as error:
            if self.is_alone and not is_pipeline_file(self.what):
                raise
            self._failed(target.name, error)
            return {"table": target.name, "error": str(error)}
        if not self.as_json:
            show(view(target.name, done, needed))
        return {"table": target.name, **content(table.location, done, needed)}

    def _failed(self, name: str, error: StreamlakeError) -> None:
        if not self.as_json:
            show(Text(f"{name}: {error}", style="bold red"))


def plan(name: str, settings: UpkeepSettings) -> RenderableType:
    """What is about to be done."""
    pairs = [(action, PLAN.get(action, action)) for action in settings.only or ACTIONS]
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
        COMPACT: None
        if done.compaction is None
        else {**asdict(done.compaction), "deleted_rows": done.compaction.deleted_rows},
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
    if done.compaction is not None:
        pairs.append((COMPACT, _compaction(done.compaction)))
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
        (words, read(getattr(before, name) or 0), read(getattr(after, name) or 0))
        for name, words, read in _FIGURES
    ]
    opened = [human_count((each.data_files or 0) + (each.delete_files or 0)) for each in (before, after)]
    rows.append(("files that a scan opens", opened[0], opened[1]))
    return grid("", [("", "left"), ("before", "right"), ("after", "right")], rows)


def _sort_terms(text: str | None) -> tuple[str, ...]:
    """The terms of "ts desc,bucket(4, id)": commas in parentheses do not part them."""
    return () if text is None else tuple(each.strip() for each in re.split(r",(?![^(]*\))", text))


def _compaction(done: Compaction) -> str:
    if not done.groups:
        return "nothing to do"
    gone = f" with {counted(done.delete_files, 'delete file')}" if done.delete_files else ""
    what = f"{_totals(done.rewritten)}{gone} in {counted(len(done.groups), 'group')}"
    if done.dry_run:
        files = sum(group.output_files for group in done.groups)
        return f"would rewrite {what} into about {counted(files, 'file')}"
    text = f"rewrote {what} into {_totals(done.added)}; {counted(done.deleted_rows, 'deleted row')} gone"
    if done.carried_rows:
        text += f"; {counted(done.carried_rows, 'delete')} of others carried over"
    if done.given_up:
        text += f"; {counted(done.given_up, 'group')} given up, because others have changed their files"
    if done.failed:
        text += f"; {len(done.failed)} failed, the first: {done.failed[0]}"
    return text


def _totals(totals: FileTotals) -> str:
    return f"{counted(totals.files, 'data file')} ({human_size(totals.bytes)}, {counted(totals.rows, 'row')})"


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
