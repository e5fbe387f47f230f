"""The commands of `streamlake rejects`: parses their arguments, and loads what they do on use."""

from __future__ import annotations

from importlib import import_module
from typing import Annotated, Any

import typer

rejects_app = typer.Typer(help="Look after the records that could not be decoded.")

_What = Annotated[
    str, typer.Argument(metavar="PIPELINE.yaml|TABLE", help="A pipeline file, or a table that one writes.")
]
_Records = Annotated[
    list[str] | None,
    typer.Argument(metavar="[RECORD]...", help="Only these, by topic, partition and offset: orders-0:17."),
]
_Table = Annotated[
    str | None, typer.Option(metavar="TABLE", help="Of a pipeline with many tables, this one.")
]
_Catalog = Annotated[
    str | None,
    typer.Option(help="Of a table: a catalog's name, or its properties: type=hadoop,warehouse=DIR."),
]
_Where = Annotated[
    str | None,
    typer.Option(
        metavar="FILTER", help="Only rejects for which this is true: \"error_message like '%amount%'\"."
    ),
]
_Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]


@rejects_app.command("list")
def rejects_list(
    what: _What,
    table: _Table = None,
    catalog: _Catalog = None,
    where: _Where = None,
    json: _Json = False,
) -> None:
    """Show why records were rejected, and how many for each cause."""
    raise typer.Exit(_run("show_causes", what, table=table, catalog=catalog, where=where, as_json=json))


@rejects_app.command("show")
def rejects_show(
    what: _What,
    record: _Records = None,
    table: _Table = None,
    catalog: _Catalog = None,
    where: _Where = None,
    limit: Annotated[int, typer.Option(metavar="N", min=1, help="The oldest N only.")] = 10,
    value: Annotated[
        bool, typer.Option("--value", help="Print the value of one record, and nothing else.")
    ] = False,
    json: _Json = False,
) -> None:
    """Show rejected records: where they come from, their key and value, and what is wrong."""
    raise typer.Exit(
        _run(
            "show_records",
            what,
            record or (),
            table=table,
            catalog=catalog,
            where=where,
            limit=limit,
            only_value=value,
            as_json=json,
        )
    )


@rejects_app.command("drop")
def rejects_drop(
    what: _What,
    record: _Records = None,
    table: _Table = None,
    catalog: _Catalog = None,
    where: _Where = None,
    every: Annotated[
        bool, typer.Option("--all", help="All of the table's (of a pipeline file: its own).")
    ] = False,
    yes: Annotated[
        bool, typer.Option("--yes", help="Do it; without, only say what would be dropped.")
    ] = False,
) -> None:
    """Remove records from the rejects for good; they will not come into the table."""
    raise typer.Exit(
        _run("drop", what, record or (), table=table, catalog=catalog, where=where, every=every, yes=yes)
    )


@rejects_app.command("edit")
def rejects_edit(
    what: _What,
    record: Annotated[
        str, typer.Argument(metavar="RECORD", help="The record, by topic, partition and offset: orders-0:17.")
    ],
    file: Annotated[
        str, typer.Argument(metavar="[FILE]", help="The file with the new value; - is the standard input.")
    ] = "-",
    table: _Table = None,
    catalog: _Catalog = None,
    where: _Where = None,
) -> None:
    """Replace the value of one rejected record, so that replay-rejects decodes the new one."""
    raise typer.Exit(_run("edit", what, record, file, table=table, catalog=catalog, where=where))


def _run(name: str, *arguments: Any, **given: Any) -> int:
    code: int = getattr(import_module("streamlake.cli.commands.rejects_commands"), name)(*arguments, **given)
    return code
