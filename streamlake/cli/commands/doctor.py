"""`streamlake doctor`: finds everything that is wrong with a table, and says how to correct it."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict

from rich.console import Console, Group, RenderableType
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn
from rich.text import Text

from streamlake.cli.arguments import parse_catalog
from streamlake.cli.views.rendering import (
    facts,
    grid,
    human_count,
    human_size,
    human_time,
    json_text,
    show,
)
from streamlake.maintain.deletion import OnProgress
from streamlake.operate.doctor.diagnosis import Diagnosis, diagnose
from streamlake.operate.doctor.finding import Finding, Severity
from streamlake.read.metadata_tables import Row
from streamlake.read.natural_values import instant
from streamlake.wording import counted

_HOUR_MS = 3600 * 1000
_STYLES = {Severity.ERROR: "bold red", Severity.WARNING: "yellow", Severity.NOTE: "dim"}
_ORPHANS_SHOWN = 10


def run(
    location: str,
    checkpoint: str | None,
    *,
    as_json: bool,
    catalog: str | None,
    orphan_age_hours: float,
    quick: bool,
) -> int:
    """Diagnose a table; returns 0 when it is healthy and 1 when anything is wrong.

    Raises whatever prevents the diagnosis.
    """
    with progress() as on_progress:
        found = diagnose(
            location,
            parse_catalog(catalog),
            checkpoint,
            orphan_age_ms=round(orphan_age_hours * _HOUR_MS),
            deletes=not quick,
            on_progress=on_progress,
        )
    if as_json:
        sys.stdout.write(json_text(content(found)) + "\n")
    else:
        show(view(found))
    return 0 if found.is_healthy else 1


def content(found: Diagnosis) -> Row:
    """A diagnosis, ready for JSON."""
    return {
        "location": found.location,
        "is_healthy": found.is_healthy,
        "snapshot_id": found.snapshot_id,
        "snapshots": found.snapshots,
        "manifests": found.manifests,
        "files": found.files,
        "bytes": found.bytes,
        "findings": [{**asdict(finding), "severity": finding.severity.value} for finding in found.findings],
        "staged": [asdict(each) for each in found.staged],
        "orphans": [
            {**asdict(orphan), "modified_at": instant(orphan.modified_ms)} for orphan in found.orphans
        ],
    }


def view(found: Diagnosis) -> RenderableType:
    """A diagnosis for a terminal: what was checked, then what is wrong, worst first."""
    counts = {severity: sum(each.severity is severity for each in found.findings) for severity in Severity}
    summary = ", ".join(counted(count, severity.value) for severity, count in counts.items() if count)
    parts: list[RenderableType] = [
        facts(
            [
                ("location", found.location),
                ("snapshot", "none" if found.snapshot_id is None else str(found.snapshot_id)),
                (
                    "looked at",
                    f"{counted(found.snapshots, 'snapshot')}, {counted(found.manifests, 'manifest')}, "
                    f"{counted(found.files, 'file')} of {human_size(found.bytes)}",
                ),
                (
                    "staged",
                    ", ".join(f"checkpoint {each.checkpoint_id} ({each.state})" for each in found.staged)
                    or "nothing",
                ),
                (
                    "verdict",
                    f"{'healthy' if found.is_healthy else 'not healthy'}{f': {summary}' if summary else ''}",
                ),
            ]
        )
    ]
    order = list(Severity)
    for finding in sorted(found.findings, key=lambda each: order.index(each.severity)):
        parts += [Text(), _finding(finding)]
    if found.orphans:
        shown = found.orphans[:_ORPHANS_SHOWN]
        title = "Files that nothing refers to" + (
            f" (the oldest {len(shown)} of {human_count(len(found.orphans))}; --json lists all)"
            if len(shown) < len(found.orphans)
            else ""
        )
        columns = [("modified", "left"), ("kind", "left"), ("size", "right"), ("path", "left")]
        rows = [
            (human_time(instant(each.modified_ms)), each.kind, human_size(each.size), each.path)
            for each in shown
        ]
        parts += [Text(), grid(title, columns, rows)]
    return Group(*parts)


def _finding(finding: Finding) -> RenderableType:
    head = Text()
    head.append(finding.severity.value, style=_STYLES[finding.severity])
    head.append(f"  {finding.check}", style="bold")
    pairs = [("  where", finding.where), ("  what", finding.what), ("  fix", finding.fix)]
    return Group(head, facts(pairs))


@contextmanager
def progress() -> Iterator[OnProgress]:
    """Context manager: shows the current step on stderr, where that is a terminal."""
    console = Console(stderr=True)
    columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bars:
        task = bars.add_task("", total=None)

        def step(what: str, done: int, total: int | None) -> None:
            bars.update(task, description=what, completed=done, total=total)

        yield step
