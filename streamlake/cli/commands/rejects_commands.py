"""`streamlake rejects`: the rejected records by cause, one by one, dropped, or with a corrected value.

A pipeline file gives its tables and the name of its pipeline; a table's name stands for the rejects of all
pipelines that write it. Spark is not needed. Invariant: without `--yes`, or somebody at the terminal who
agrees, nothing is dropped.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import typer
from rich.console import Group, RenderableType
from rich.text import Text

from streamlake.cli.arguments import is_pipeline_file, parse_catalog
from streamlake.cli.views.rendering import facts, grid, human_count, human_time, json_text, show
from streamlake.cli.views.task_progress import step_progress
from streamlake.errors import InvalidOptionError
from streamlake.operate.replay.kept_rejects import KeptRejects, kept_rejects, parsed_place
from streamlake.operate.replay.replay_settings import replayed_tables
from streamlake.pipeline.definition.pipeline_file import load_pipeline
from streamlake.pipeline.runs.rejected.rejects_table import rejects_name
from streamlake.records import place_text
from streamlake.tasks.table_names import REJECTS_ENDING
from streamlake.wording import counted

_VALUE_SHOWN = 2_000


def show_causes(
    what: str, *, table: str | None, catalog: str | None, where: str | None, as_json: bool
) -> int:
    """Print the causes of the rejects of each table; returns 0."""
    found = [kept_rejects(**each, where=where) for each in _tables(what, table, catalog)]
    if as_json:
        content = [
            {
                "table": each.table,
                "rejects": each.name,
                "records": each.rows.num_rows,
                "causes": [asdict(cause) for cause in each.causes()],
            }
            for each in found
        ]
        sys.stdout.write(json_text(content) + "\n")
        return 0
    parts: list[RenderableType] = []
    for each in found:
        parts += _causes(each, what)
    show(Group(*parts))
    return 0


def show_records(
    what: str,
    named: Sequence[str],
    *,
    table: str | None,
    catalog: str | None,
    where: str | None,
    limit: int,
    only_value: bool,
    as_json: bool,
) -> int:
    """Print rejected records, the oldest first; returns 1 where one that was named is not there."""
    count = None if named else limit
    found = [
        kept_rejects(**each, where=where, named=named, limit=count) for each in _tables(what, table, catalog)
    ]
    records = [record for each in found for record in each.records()]
    if only_value:
        if len(records) != 1:
            raise InvalidOptionError(f"--value is for one record, and these are {len(records)}: name it")
        sys.stdout.buffer.write(records[0]["value"] or b"")
        sys.stdout.flush()
        return 0
    if as_json:
        sys.stdout.write(json_text([_readable(each) for each in records]) + "\n")
    elif records:
        parts = [part for record in records for part in (facts(_facts(record)), Text())]
        show(Group(*parts))
    else:
        sys.stdout.write(f"{', '.join(_name(each) for each in found)}: no such record\n")
    return 1 if named and not records else 0


def drop(
    what: str,
    named: Sequence[str],
    *,
    table: str | None,
    catalog: str | None,
    where: str | None,
    every: bool,
    yes: bool,
) -> int:
    """Drop the chosen records, once somebody agrees; returns 1 where there are none."""
    if not (named or where or every):
        raise InvalidOptionError("say what to drop: records such as orders-0:17, --where FILTER, or --all")
    chosen = [kept_rejects(**each, where=where, named=named) for each in _tables(what, table, catalog)]
    chosen = [each for each in chosen if each.rows.num_rows]
    if not chosen:
        sys.stdout.write("There is no such record; nothing was done.\n")
        return 1
    for each in chosen:
        sys.stdout.write(f"{_name(each)}: {counted(each.rows.num_rows, 'record')} would be dropped:\n")
        for cause in each.causes():
            sys.stdout.write(f"  {human_count(cause.records)}  {cause.text}\n")
    sys.stdout.write("Dropped records do not come into the table; their topic may still have them.\n")
    if not yes and sys.stdin.isatty():
        yes = typer.confirm("Drop them?")
    if not yes:
        sys.stdout.write("Nothing was done yet; run this again with --yes.\n")
        return 0
    for each in chosen:
        with step_progress(f"rejects drop {each.table}") as on_progress:
            dropped = each.drop(on_progress)
        sys.stdout.write(f"{_name(each)}: {counted(dropped, 'record')} dropped\n")
    return 0


def edit(
    what: str, named: str, file: str, *, table: str | None, catalog: str | None, where: str | None
) -> int:
    """Replace one record's value by the content of a file, or of the standard input; returns 0."""
    found = [kept_rejects(**each, where=where, named=[named]) for each in _tables(what, table, catalog)]
    chosen = [each for each in found if each.rows.num_rows] or found[:1]
    if len(chosen) != 1:
        raise InvalidOptionError(
            f"{named} is among the rejects of {' and '.join(each.table for each in chosen)}: say which with "
            "--table"
        )
    content = _content(file)
    with step_progress(f"rejects edit {chosen[0].table}") as on_progress:
        chosen[0].edit(content, on_progress)
    place = place_text(*parsed_place(named))
    sys.stdout.write(
        f"{_name(chosen[0])}: {place} has a new value. Bring it into the table with `streamlake "
        f"replay-rejects {_pipeline_file(what)}`\n"
    )
    return 0


def _tables(what: str, table: str | None, catalog: str | None) -> list[dict[str, Any]]:
    """The arguments of `kept_rejects` for each table that is meant."""
    if is_pipeline_file(what):
        if catalog is not None:
            raise InvalidOptionError("a pipeline file names its catalog itself; --catalog belongs to a table")
        given = replayed_tables(load_pipeline(what), what, table)
        names = {each.rejects_of or each.table: each for each in given}
        return [
            {"table": name, "catalog": each.catalog, "pipeline": each.pipeline}
            for name, each in names.items()
        ]
    if table is not None:
        raise InvalidOptionError(f"--table belongs to a pipeline file, and {what} is a table")
    return [
        {"table": what.rstrip("/").removesuffix(REJECTS_ENDING), "catalog": parse_catalog(catalog)},
    ]


def _pipeline_file(what: str) -> str:
    return what if is_pipeline_file(what) else "PIPELINE.yaml"


def _content(file: str) -> bytes:
    if file == "-":
        return sys.stdin.buffer.read()
    try:
        return Path(file).read_bytes()
    except OSError as error:
        raise InvalidOptionError(f"the file {file} cannot be read: {error.strerror}") from error


def _name(found: KeptRejects) -> str:
    return found.name or rejects_name(found.table)


def _causes(found: KeptRejects, what: str) -> list[RenderableType]:
    causes = found.causes()
    if not causes:
        return [Text(f"{_name(found)}: no rejects"), Text()]
    rows = [
        (human_count(cause.records), cause.text, cause.first, human_time(cause.until)) for cause in causes
    ]
    columns = [
        ("records", "right"),
        ("cause", "left"),
        ("first of them", "right"),
        ("last rejected", "right"),
    ]
    hints = (
        f"One of them: streamlake rejects show {what} {_short(causes[0].first)}\n"
        f"With a corrected value: streamlake rejects edit {what} {_short(causes[0].first)} FILE\n"
        f"Once the cause is corrected: streamlake replay-rejects {_pipeline_file(what)}"
    )
    title = f"{_name(found)}: {counted(found.rows.num_rows, 'record')}, {counted(len(causes), 'cause')}"
    return [grid(title, columns, rows), Text(hints, style="dim"), Text()]


def _short(place: str) -> str:
    """A place as an argument: orders-0:17."""
    return place.replace(" offset ", ":")


def _facts(record: dict[str, Any]) -> list[tuple[str, str]]:
    headers = record["headers"] or []
    pairs = [
        ("record", _short(place_text(record["topic"], record["partition"], record["offset"]))),
        ("error", record["error_message"]),
        ("", record["error_class"]),
        ("timestamp", human_time(record["timestamp"])),
        ("key", _text(record["key"])),
        ("value", _text(record["value"])),
        *((f"header {header['key']}", _text(header["value"])) for header in headers),
        (
            "rejected",
            f"{human_time(record['rejected_at'])}, by pipeline '{record['pipeline']}', checkpoint "
            f"{record['checkpoint_id']}",
        ),
    ]
    return pairs


def _text(content: bytes | None) -> str:
    """Bytes as text where they are text, else in hexadecimal digits; long ones are cut, with a note."""
    if content is None:
        return "null"
    more = f"… ({len(content):,} bytes)" if len(content) > _VALUE_SHOWN else ""
    try:
        text = content.decode()
    except UnicodeDecodeError:
        return f"0x{content[: _VALUE_SHOWN // 2].hex()}{more}"
    if not all(letter.isprintable() or letter.isspace() for letter in text):
        return f"0x{content[: _VALUE_SHOWN // 2].hex()}{more}"
    return f"{text[:_VALUE_SHOWN]}{more}"


def _readable(record: dict[str, Any]) -> dict[str, Any]:
    """A record for JSON: key and value as texts where they are, and always in hexadecimal digits."""
    texts = {}
    for name in ("key", "value"):
        content = record[name]
        try:
            texts[f"{name}_text"] = None if content is None else content.decode()
        except UnicodeDecodeError:
            texts[f"{name}_text"] = None
    return {**record, **texts}
