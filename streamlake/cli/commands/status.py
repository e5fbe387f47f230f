"""`streamlake status`: a pipeline's lag, its last commit, its pace and its rejects."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import asdict
from datetime import datetime

from rich.console import Group, RenderableType
from rich.live import Live
from rich.text import Text

from streamlake import clock
from streamlake.checkpoint.heartbeat import TableUpkeep
from streamlake.cli.arguments import is_pipeline_file, option_pairs, parse_catalog
from streamlake.cli.views.rendering import (
    facts,
    grid,
    human_count,
    human_deleted_rows,
    human_duration,
    human_rows,
    human_time,
    json_text,
    show,
    terminal,
)
from streamlake.errors import InvalidOptionError
from streamlake.operate.status.driver_status import DriverStatus, RunState
from streamlake.operate.status.status import (
    PartitionLag,
    PipelineStatus,
    StatusReader,
    status_of,
    status_of_table,
)
from streamlake.operate.status.table_status import TableStatus
from streamlake.pipeline.definition.pipeline_file import load_pipeline
from streamlake.read.metadata_tables import Row
from streamlake.read.natural_values import instant
from streamlake.wording import counted

_PARTITIONS_SHOWN = 32
_OFFSETS = ("offsets", "source_offset")
PROBLEM, STOPPED, FAILED, SILENT = 1, 3, 4, 5
"""Exit codes; 2 is a wrong command line."""


def run(
    what: str,
    *,
    as_json: bool,
    watch: bool,
    interval: float,
    bootstrap_servers: str | None,
    topics: Sequence[str],
    options: Sequence[str],
    catalog: str | None,
    branch: str,
    pipeline: str | None,
) -> int:
    """Show the status once, or until Ctrl-C; returns `exit_code` of what it shows.

    Raises InvalidOptionError, and the errors of opening a table.
    """
    if is_pipeline_file(what):
        if bootstrap_servers or topics or options or catalog or pipeline or branch != "main":
            raise InvalidOptionError(
                "a pipeline file names everything itself; other options belong to a table"
            )
        reader = status_of(load_pipeline(what))
    else:
        reader = status_of_table(
            what,
            parse_catalog(catalog),
            branch=branch,
            pipeline=pipeline,
            bootstrap_servers=bootstrap_servers,
            topics=topics,
            options=option_pairs(options),
        )
    with reader:
        if watch:
            return _watch(reader, interval, as_json=as_json)
        found = reader.read()
        if as_json:
            sys.stdout.write(json_text(content(found)) + "\n")
        else:
            show(view(found))
        return exit_code(found)


def exit_code(found: PipelineStatus) -> int:
    """FAILED and SILENT before PROBLEM, and STOPPED last; 0 for a pipeline that runs, has ended by itself, or
    does not say.
    """
    state = None if found.driver is None else found.driver.state
    if state is RunState.FAILED:
        return FAILED
    if state is RunState.SILENT:
        return SILENT
    if found.problems:
        return PROBLEM
    return STOPPED if state is RunState.STOPPED else 0


def _watch(reader: StatusReader, interval: float, *, as_json: bool) -> int:
    """Show the status repeatedly.

    It is updated in place on a terminal, one below the other elsewhere, and with `as_json` a line of JSON
    each.
    """
    console = terminal()
    try:
        if as_json or not console.is_terminal:
            while True:
                found = reader.read()
                if as_json:
                    sys.stdout.write(json_text(content(found), indent=None) + "\n")
                else:
                    show(view(found), console)
                sys.stdout.flush()
                clock.sleep(interval)
        with Live(console=console, auto_refresh=False) as live:
            while True:
                live.update(view(reader.read()), refresh=True)
                clock.sleep(interval)
    except KeyboardInterrupt:
        return 0


def content(found: PipelineStatus) -> Row:
    """A status, ready for JSON; the offsets of a table are beside its partitions."""
    tables = []
    for table in found.tables:
        shown_fields = {name: value for name, value in vars(table).items() if name not in _OFFSETS}
        tables.append({**shown_fields, "committed_at": _moment(table.committed_ms)})
    return {
        "name": found.name,
        "driver": None if found.driver is None else _driver_content(found.driver),
        "lag": found.lag,
        "seconds_left": found.seconds_left,
        "tables": tables,
        "partitions": [asdict(each) for each in found.partitions],
        "source": None if found.source is None else asdict(found.source),
        "notes": list(found.notes),
        "problems": list(found.problems),
    }


def view(found: PipelineStatus) -> RenderableType:
    """A status for a terminal: the sums, each table, the partitions that are furthest behind."""
    parts: list[RenderableType] = [
        facts(
            [
                ("pipeline", found.name or "without a name"),
                *_driver(found.driver),
                *_source(found),
                ("lag", _lag(found)),
                *(("note", note) for note in found.notes),
                *(
                    (
                        "tombstones",
                        f"{counted(each.tombstones, 'record')} without a value left out of {each.table}",
                    )
                    for each in found.tables
                    if each.tombstones
                ),
                *(
                    (
                        "needs care",
                        f"{each.table}: {', '.join(each.needs_care)}; `streamlake doctor` says what helps",
                    )
                    for each in found.tables
                    if each.needs_care
                ),
            ]
        )
    ]
    parts += [_wrapped(f"problem  {problem}", style="bold red") for problem in found.problems]
    if found.tables:
        parts += [Text(), _tables(found.tables)]
    if found.partitions:
        parts += _partitions(found.partitions)
    return Group(*parts)


def _lag(found: PipelineStatus) -> str:
    if found.lag is None:
        return "unknown"
    source = found.source
    if source is None:
        lag = counted(found.lag, "offset")
        if not found.lag or found.seconds_left is None:
            return lag
        return f"{lag}, about {human_duration(found.seconds_left)} at the pace of the last commits"
    parts = [
        counted(found.lag, "snapshot"),
        counted(source.files or 0, "file"),
        counted(source.rows or 0, "row"),
    ]
    return ", ".join([*parts, *filter(None, [human_duration(source.seconds)])])


def _source(found: PipelineStatus) -> list[tuple[str, str]]:
    source = found.source
    if source is None:
        return []
    name = source.table + ("" if source.branch == "main" else f" @{source.branch}")
    head = "unknown" if source.head_snapshot_id is None else str(source.head_snapshot_id)
    if source.snapshot_id is None:
        return [("reads", f"{name}, whose head is {head}")]
    half = "in the middle of snapshot" if source.is_within else "up to snapshot"
    return [("reads", f"{name}, {half} {source.snapshot_id}; its head is {head}")]


def _driver_content(driver: DriverStatus) -> Row:
    return {
        **asdict(driver),
        "started_at": _moment(driver.started_ms),
        "seen_at": _moment(driver.seen_ms),
        "error_at": _moment(driver.error_ms),
    }


def _driver(driver: DriverStatus | None) -> list[tuple[str, str]]:
    if driver is None:
        return []
    where = f"process {driver.pid} on {driver.host}"
    seen, started = human_time(_moment(driver.seen_ms)), human_time(_moment(driver.started_ms))
    words = {
        RunState.RUNNING: f"running since {started}: {where}",
        RunState.IDLE: f"idle, nothing is new: {where}, since {started}",
        RunState.STOPPED: f"stopped at {seen}",
        RunState.ENDED: f"ended by itself at {seen}, with nothing left to do",
        RunState.FAILED: f"failed at {seen}",
        RunState.SILENT: f"not heard from since {seen}: {where} was killed, or cannot reach its checkpoint "
        "directory",
    }
    pairs = [("state", words[driver.state])]
    if driver.error is not None:
        at = "" if driver.state is RunState.FAILED else f"{human_time(_moment(driver.error_ms))} "
        pairs.append(("last error", f"{at}{driver.error}"))
    return [*pairs, *(("maintenance", _upkeep(each)) for each in driver.maintenance)]


def _upkeep(upkeep: TableUpkeep) -> str:
    parts = []
    if upkeep.ended_ms is not None:
        done = f"{', '.join(upkeep.actions)}: {upkeep.what}" if upkeep.actions else "nothing done"
        parts.append(f"{human_time(_moment(upkeep.ended_ms))} {done}")
    if upkeep.due:
        why = f", waits for {upkeep.waits_for}" if upkeep.waits_for else ""
        parts.append(f"{', '.join(upkeep.due)} due{why}")
    if upkeep.error is not None:
        parts.append(f"failed, tried again later: {upkeep.error}")
    return f"{upkeep.table}: {'; '.join(parts)}"


def _tables(tables: Sequence[TableStatus]) -> RenderableType:
    columns = [
        ("table", "left"),
        ("checkpoint", "right"),
        ("committed", "right"),
        ("ago", "right"),
        ("rows/s", "right"),
        ("watermark", "right"),
        ("live rows", "right"),
        ("deleted rows", "right"),
        ("files", "right"),
        ("delete files", "right"),
        ("rejected", "right"),
    ]
    return grid("", columns, [_table(each) for each in tables])


def _table(table: TableStatus) -> list[str]:
    name = table.table + ("" if table.branch == "main" else f" @{table.branch}")
    if not table.exists:
        return [f"{name} (not there yet)", *[""] * 10]
    return [
        name,
        "" if table.checkpoint_id is None else str(table.checkpoint_id),
        human_time(_moment(table.committed_ms)),
        human_duration(table.seconds_since_commit),
        human_count(table.rows_per_second),
        human_time(_moment(table.watermark_ms)),
        human_rows(table.live_rows, table.live_rows_at_most),
        "" if table.records is None else human_deleted_rows(table.live_rows, table.deleted_rows),
        human_count(table.data_files),
        human_count(table.delete_files),
        human_count(table.rejected if table.rejects is None else table.rejects),
    ]


def _partitions(partitions: Sequence[PartitionLag]) -> list[RenderableType]:
    shown = sorted(partitions, key=lambda each: -1 if each.lag is None else each.lag, reverse=True)
    shown = shown[:_PARTITIONS_SHOWN]
    left = len(partitions) - len(shown)
    heading = f"The {len(shown)} that are furthest behind ({left:,} more; --json lists all)"
    rows = [
        (
            f"{each.topic}-{each.partition}",
            human_count(each.committed) or "none",
            human_count(each.end) or "unknown",
            human_count(each.lag) or "unknown",
        )
        for each in sorted(shown, key=lambda each: (each.topic, each.partition))
    ]
    columns = [("partition", "left"), ("committed", "right"), ("end", "right"), ("lag", "right")]
    return [*([_wrapped(heading)] if left else []), grid("", columns, rows)]


def _wrapped(text: str, style: str = "") -> Text:
    return Text(text, style=style, no_wrap=False, overflow="fold")


def _moment(timestamp_ms: int | None) -> datetime | None:
    return None if timestamp_ms is None else instant(timestamp_ms)
