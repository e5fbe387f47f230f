"""`streamlake check`: checks everything that a pipeline file needs, before anything is started."""

from __future__ import annotations

import sys

from rich.console import Group, RenderableType
from rich.text import Text

from streamlake.cli.views.rendering import facts, json_text, show
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
        show(view(points))
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
    width = max((len(each.verdict.value) for each in points.found), default=0)
    pairs: list[tuple[str | Text, str]] = []
    for each in points.found:
        verdict = Text(each.verdict.value.ljust(width), style=_STYLES[each.verdict])
        pairs.append((Text.assemble(verdict, "  ", (each.about, "dim")), each.message))
    errors, warnings = points.count(Verdict.ERROR), points.count(Verdict.WARNING)
    counts = [counted(count, word) for count, word in ((errors, "error"), (warnings, "warning")) if count]
    outcome = "the pipeline can be started" if points.is_right else "the pipeline cannot be started"
    return Group(
        facts(pairs), Text(), Text(f"{outcome}{': ' if counts else ''}{', '.join(counts)}", style="bold")
    )
