"""`streamlake check`: checks everything that a pipeline file needs, before anything is started."""

from __future__ import annotations

import sys

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from streamlake.cli.views.rendering import json_text, terminal
from streamlake.operate.check.check_points import Points, Verdict
from streamlake.operate.check.pipeline_check import check_pipeline
from streamlake.pipeline.definition.running import PipelineRun
from streamlake.read.metadata_tables import Row
from streamlake.wording import counted

_STYLES = {
    Verdict.RIGHT: "green",
    Verdict.NOTE: "cyan",
    Verdict.WARNING: "yellow",
    Verdict.ERROR: "bold red",
    Verdict.UNKNOWN: "dim",
}


def run(path: str, *, as_json: bool) -> int:
    """Check the pipeline in the file; returns 0 when nothing is wrong with it, else 1."""
    points = check_pipeline(path, PipelineRun)
    if as_json:
        sys.stdout.write(json_text(content(path, points)) + "\n")
    else:
        terminal().print(view(points))
    return 0 if points.is_right else 1


def content(path: str, points: Points) -> Row:
    """What was found, ready for JSON."""
    return {
        "pipeline": path,
        "is_right": points.is_right,
        "points": [
            {"about": each.about, "verdict": each.verdict.value, "told": each.message}
            for each in points.found
        ],
    }


def view(points: Points) -> RenderableType:
    """One or more lines for each point, and the verdict."""
    table = Table.grid(padding=(0, 2))
    table.add_column(no_wrap=True)
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    for each in points.found:
        table.add_row(
            Text(each.verdict.value, style=_STYLES[each.verdict]), Text(each.about), Text(each.message)
        )
    errors, warnings = points.count(Verdict.ERROR), points.count(Verdict.WARNING)
    counts = [counted(count, word) for count, word in ((errors, "error"), (warnings, "warning")) if count]
    verdict = "the pipeline can be started" if points.is_right else "the pipeline cannot be started"
    return Group(table, Text(), Text(f"{verdict}{': ' if counts else ''}{', '.join(counts)}", style="bold"))
