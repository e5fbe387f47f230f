"""`streamlake replay-rejects`: writes rejected records into their tables, once the cause is repaired."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import asdict

from rich.console import Group, RenderableType
from rich.text import Text

from streamlake.cli.views.rendering import facts, grid, human_count, json_text, show
from streamlake.cli.views.task_progress import step_progress
from streamlake.operate.replay.replay import Replayed, replay
from streamlake.operate.replay.replay_settings import replayed_tables
from streamlake.pipeline.definition.pipeline_file import load_pipeline
from streamlake.pipeline.runs.rejected.rejects_table import rejects_name
from streamlake.wording import counted

_ERRORS_SHOWN = 10


def run(path: str, *, table: str | None, where: str | None, limit: int | None, as_json: bool) -> int:
    """Replay, print the result, and return 0 when nothing is left of the chosen rejects, else 1."""
    found = []
    for each in replayed_tables(load_pipeline(path), path, table):
        with step_progress(f"replay-rejects {each.table}") as on_progress:
            found.append(replay(each, where, limit, on_progress))
    if as_json:
        sys.stdout.write(json_text([asdict(each) for each in found]) + "\n")
    else:
        show(view(found))
    return 1 if any(each.failed for each in found) else 0


def view(found: Sequence[Replayed]) -> RenderableType:
    """The results of replays, for a terminal."""
    parts: list[RenderableType] = []
    for each in found:
        pairs = [
            ("table", each.table),
            ("rejects", rejects_name(each.table)),
            ("replayed", f"{counted(each.records, 'record')}, {counted(each.rows, 'row')}"),
            ("snapshot", "none" if each.snapshot_id is None else str(each.snapshot_id)),
            ("failed again", human_count(each.failed)),
            ("left", f"{human_count(each.left)} in the rejects"),
        ]
        if each.recovered:
            text = f"{counted(each.recovered, 'record')} of a replay that was interrupted"
            pairs.append(("recovered", text))
        pairs += [("note", note) for note in each.notes]
        parts.append(facts(pairs))
        if each.errors:
            shown = list(each.errors.items())[:_ERRORS_SHOWN]
            rows = [(human_count(count), text) for text, count in shown]
            parts.append(grid("Why they fail", [("records", "right"), ("error", "left")], rows))
        parts.append(Text())
    return Group(*parts)
