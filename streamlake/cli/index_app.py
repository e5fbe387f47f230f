"""The commands of `streamlake index`: parses their arguments; `commands.index` is loaded on use."""

from __future__ import annotations

from importlib import import_module
from typing import Annotated, Any

import typer

index_app = typer.Typer(help="Look after the key index of a table that is upserted into.")

_Table = Annotated[str, typer.Argument(metavar="TABLE", help="A table's directory, or a catalog's name.")]
_Json = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]
_Catalog = Annotated[
    str | None, typer.Option(help="A catalog's name, or its properties: type=hadoop,warehouse=DIR.")
]
_Branch = Annotated[str, typer.Option(metavar="NAME", help="The branch whose index it is.")]
_Key = Annotated[
    str | None,
    typer.Option(
        metavar="A,B", help="Columns of the key (default: those of the newest index, or the schema's)."
    ),
]
_SequenceBy = Annotated[
    str | None,
    typer.Option(metavar="A,B", help="Columns of sequence_by (default: those of the newest index)."),
]


@index_app.command("status")
def index_status(
    table: _Table,
    json: _Json = False,
    catalog: _Catalog = None,
    branch: _Branch = "main",
    key: _Key = None,
    sequence_by: _SequenceBy = None,
) -> None:
    """Show which index there is, how large it is, and what it does not know yet."""
    raise typer.Exit(_command("status", table, json, catalog, branch, key, sequence_by))


@index_app.command("check")
def index_check(
    table: _Table,
    json: _Json = False,
    catalog: _Catalog = None,
    branch: _Branch = "main",
    key: _Key = None,
    sequence_by: _SequenceBy = None,
) -> None:
    """Look up every live row of the table; exit code 1 when the index misses one."""
    raise typer.Exit(_command("check", table, json, catalog, branch, key, sequence_by))


@index_app.command("rebuild")
def index_rebuild(
    table: _Table,
    json: _Json = False,
    catalog: _Catalog = None,
    branch: _Branch = "main",
    key: _Key = None,
    sequence_by: _SequenceBy = None,
) -> None:
    """Build the index anew from the table; the stream uses it from its next checkpoint on."""
    raise typer.Exit(_command("rebuild", table, json, catalog, branch, key, sequence_by))


def _command(*arguments: Any) -> int:
    code: int = import_module("streamlake.cli.commands.index").run(*arguments)
    return code
