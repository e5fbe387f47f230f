"""`streamlake verify`: compares a table with its source, key by key."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict
from functools import partial
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from streamlake.catalog.open import open_table
from streamlake.cli.arguments import option_pairs, option_value, parse_catalog
from streamlake.cli.views.rendering import facts, grid, human_count, human_value, json_text, show
from streamlake.cli.views.task_progress import task_progress
from streamlake.errors import InvalidOptionError
from streamlake.operate.verify.comparison import PROBLEMS, UNREADABLE, Example
from streamlake.operate.verify.postgres_table import PostgresTable
from streamlake.operate.verify.verification import Verification, verify
from streamlake.operate.verify.verified_source import (
    following,
    named_source,
    pipeline_arguments,
    pipeline_source,
    postgres_tables,
)
from streamlake.pipeline.definition.pipeline_file import Pipeline, load_pipeline
from streamlake.pipeline.spark.session import SparkSession, spark_session
from streamlake.read.metadata_tables import Row
from streamlake.table.table import Table
from streamlake.wording import counted

_OF_CHANGES = frozenset({"mode", "sequence_by", "row_kind", "until", "name"})
_WORDS = {
    "missing": "in the source, not in the table",
    "extra": "in the table, not in the source",
    "different": "in both, with other values",
    "duplicate": "more often in the table than in the source",
    "unreadable": "in the source, cannot become rows, and not among the rejects",
}


def run(
    location: str | None,
    *,
    against: str | None,
    pipeline: str | None,
    postgres: str | None,
    postgres_table: str | None,
    as_json: bool,
    catalog: str | None,
    against_catalog: str | None,
    schema: str | None,
    options: Sequence[str],
    **given: Any,
) -> int:
    """Compare, print, and return 0 when the table holds what the source says, else 1.

    `given` are the arguments of `verify` that the command line names. Raises whatever prevents the
    comparison.
    """
    if postgres is None and (against is None) == (pipeline is None):
        raise InvalidOptionError("give --against SOURCE, --pipeline FILE.yaml or --postgres DSN")
    if postgres is not None and against is not None:
        raise InvalidOptionError("--postgres and --against both name the source: give one of them")
    if postgres is None and postgres_table is not None:
        raise InvalidOptionError("--postgres-table needs --postgres, which says where the database is")
    arguments: dict[str, Any] = {name: value for name, value in given.items() if value not in (None, ())}
    if "key" in arguments and arguments["key"] == ("",):
        arguments["key"] = ()
    if location is not None:
        arguments["table"] = location
    if catalog is not None:
        arguments["catalog"] = parse_catalog(catalog)
    started: list[SparkSession] = []

    def session() -> SparkSession:
        if not started:
            # A task's error is raised here too, and is shown in one line.
            started.append(
                spark_session("streamlake verify", master=master, config=config, log_level="FATAL")
            )
        return started[0]

    loaded = None if pipeline is None else load_pipeline(pipeline)
    master, config = (None, None) if loaded is None else (loaded.spark.master, loaded.spark.config)
    targets: list[tuple[dict[str, Any], Callable[[Table], Any]]]
    if postgres is not None:
        targets = [
            (each, partial(_itself, source))
            for each, source in _in_postgres(
                loaded, pipeline or "", option_value(postgres, "--postgres"), postgres_table, arguments
            )
        ]
    elif loaded is not None and pipeline is not None:
        from_file = pipeline_arguments(loaded, pipeline)

        def from_pipeline(table: Table) -> Any:
            return following(pipeline_source(loaded, session, pipeline), loaded, table)

        targets = [({**from_file, **arguments}, from_pipeline)]
    else:
        assert against is not None
        named: dict[str, Any] = {
            "catalog": parse_catalog(against_catalog, "--against-catalog"),
            "schema": schema,
            "options": option_pairs(options),
        }
        targets = [({"name": against, **arguments}, lambda _: named_source(against, session, **named))]
    results = []
    try:
        for each, source_of in targets:
            results.append(_verified(each, source_of, session))
            if not as_json:
                show(view(results[-1]))
    finally:
        for each_session in started:
            each_session.stop()
    is_equal = all(found.is_equal for found in results)
    if as_json and loaded is not None and loaded.sink.is_many:
        every = {"is_equal": is_equal, "tables": [content(found) for found in results]}
        sys.stdout.write(json_text(every) + "\n")
    elif as_json:
        sys.stdout.write(json_text(content(results[0])) + "\n")
    return 0 if is_equal else 1


def _verified(
    arguments: dict[str, Any], source_of: Callable[[Table], Any], session: Callable[[], SparkSession]
) -> Verification:
    """Compare one table, and show the progress."""
    if "table" not in arguments:
        raise InvalidOptionError("name the table to verify")
    name = str(arguments.pop("table"))
    with task_progress(f"verify: opening {name}, and starting Spark") as progress:
        table = open_table(name, arguments.get("catalog"))
        source = source_of(table)
        progress.say(f"verify: comparing {name} with its source", session())
        return verify(table, source, **arguments)


def _in_postgres(
    pipeline: Pipeline | None,
    path: str,
    dsn: str,
    name: str | None,
    arguments: dict[str, Any],
) -> list[tuple[dict[str, Any], PostgresTable]]:
    """The arguments of `verify` for each table, with the database's table that it is compared with."""
    # A database table is the current state already, however its changes get into the Iceberg table.
    chosen = {key: arguments[key] for key in arguments if key not in _OF_CHANGES}
    if pipeline is None or name is not None or "table" in arguments:
        if pipeline is not None:
            from_file = pipeline_arguments(pipeline, path)
            chosen = {**{key: from_file[key] for key in from_file if key not in _OF_CHANGES}, **chosen}
        own = re.split(r"[/.]", str(chosen.get("table", "")).rstrip("/"))[-1]
        return [(chosen, PostgresTable(dsn, name or own))]
    return [({**each, **chosen}, table) for each, table in postgres_tables(pipeline, path, dsn)]


def _itself(value: PostgresTable, _: Table) -> PostgresTable:
    return value


def content(found: Verification) -> Row:
    """A verification, ready for JSON."""
    return {"is_equal": found.is_equal, **asdict(found)}


def view(found: Verification) -> RenderableType:
    """A verification for a terminal: the verdict, then examples of each problem."""
    counts = {
        "missing": found.missing,
        "extra": found.extra,
        "different": found.different,
        "duplicate": found.duplicates,
        "unreadable": found.unreadable,
    }
    pairs = [
        ("table", found.table),
        ("snapshot", "none" if found.snapshot_id is None else str(found.snapshot_id)),
        ("source", found.source),
        ("compared by", ", ".join(found.key) or "whole rows"),
        ("columns", ", ".join(found.columns)),
        (
            "rows",
            f"{human_count(found.source_rows)} in the source, {human_count(found.table_rows)} in the table",
        ),
        *(
            (problem, f"{human_count(counts[problem])}  {_WORDS[problem]}")
            for problem in PROBLEMS
            if problem != UNREADABLE or counts[problem]
        ),
    ]
    if found.rejected:
        left_out = f"{human_count(found.rejected)}  of the source are in the rejects, and were not compared"
        pairs.append(("rejected", left_out))
    if found.differing_columns:
        differing = ", ".join(
            f"{name} ({human_count(count)})" for name, count in found.differing_columns.items()
        )
        pairs.append(("differ in", differing))
    if found.source_duplicates:
        pairs.append(("source", f"has {counted(found.source_duplicates, 'key')} more than once"))
    pairs += [("note", note) for note in found.notes]
    verdict = "equal" if found.is_equal else "NOT EQUAL"
    parts: list[RenderableType] = [facts([*pairs, ("verdict", verdict)])]
    for problem in PROBLEMS:
        if found.examples.get(problem):
            parts += [Text(), _examples(problem, found.examples[problem])]
    return Group(*parts)


def _examples(problem: str, examples: Sequence[Example]) -> RenderableType:
    title = f"{problem.capitalize()}: {_WORDS[problem]}"
    if problem == UNREADABLE:
        return grid(
            title,
            [("record", "left"), ("reason", "left")],
            [(each["record"], each["reason"]) for each in examples],
        )
    if problem == "different":
        rows = [
            (_values(each["key"]), name, human_value(values["source"]), human_value(values["table"]))
            for each in examples
            for name, values in each["columns"].items()
        ]
        columns = [("key", "left"), ("column", "left"), ("source", "left"), ("table", "left")]
        return grid(title, columns, rows)
    return grid(
        title,
        [("key", "left"), ("row", "left"), ("in source", "right"), ("in table", "right")],
        [
            (
                _values(each.get("key", {})),
                _values(each.get("row", {})),
                human_count(each["source_rows"]),
                human_count(each["table_rows"]),
            )
            for each in examples
        ],
    )


def _values(values: Row) -> str:
    return " ".join(f"{name}={human_value(value)}" for name, value in values.items())
