"""The commands of `streamlake table`: parses their arguments, and loads what they do on use."""

from __future__ import annotations

from importlib import import_module
from typing import Annotated, Any

import typer

table_app = typer.Typer(help="Look after tables: create, change, drop them, delete rows.")

_Table = Annotated[str, typer.Argument(metavar="TABLE", help="A table's directory, or a catalog's name.")]
_Catalog = Annotated[
    str | None, typer.Option(help="A catalog's name, or its properties: type=hadoop,warehouse=DIR.")
]
_NeededCatalog = Annotated[
    str, typer.Option("--catalog", help="A catalog's name, or its properties: type=hadoop,warehouse=DIR.")
]
_Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
_Yes = Annotated[bool, typer.Option("--yes", help="Do it; without, only say what would be done.")]
_DryRun = Annotated[bool, typer.Option("--dry-run", help="Change nothing, say what would be done.")]
_Branch = Annotated[str, typer.Option(metavar="NAME", help="The branch.")]


@table_app.command("list")
def table_list(
    catalog: _NeededCatalog,
    namespace: Annotated[
        str | None, typer.Argument(metavar="[NAMESPACE]", help="Those of this namespace (default: all).")
    ] = None,
    json: _Json = False,
) -> None:
    """List the tables of a catalog."""
    raise typer.Exit(_tables("show_tables", namespace, catalog=catalog, as_json=json))


@table_app.command("create")
def table_create(
    table: _Table,
    schema: Annotated[
        str,
        typer.Option(
            metavar="DDL", help="Columns: 'id long not null, at timestamp', or @FILE that holds them."
        ),
    ],
    partition_by: Annotated[
        list[str] | None, typer.Option(metavar="TERM", help="Such as day(at) or bucket(16, id); repeat it.")
    ] = None,
    sort_by: Annotated[
        list[str] | None, typer.Option(metavar="TERM", help="Such as 'at desc'; repeat it.")
    ] = None,
    identifier_fields: Annotated[
        str | None, typer.Option(metavar="A,B", help="The columns that identify rows.")
    ] = None,
    property_: Annotated[
        list[str] | None, typer.Option("--property", metavar="NAME=VALUE", help="A table property.")
    ] = None,
    format_version: Annotated[int | None, typer.Option(metavar="N", help="2 (default) or 3.")] = None,
    catalog: _Catalog = None,
    json: _Json = False,
) -> None:
    """Create an empty table."""
    raise typer.Exit(
        _tables(
            "create",
            table,
            schema=schema,
            partition_by=tuple(partition_by or ()),
            sort_by=tuple(sort_by or ()),
            identifier_fields=identifier_fields,
            properties=tuple(property_ or ()),
            format_version=format_version,
            catalog=catalog,
            as_json=json,
        )
    )


@table_app.command("drop")
def table_drop(
    table: _Table,
    purge: Annotated[
        bool, typer.Option("--purge", help="Delete the table's files, too, those of all snapshots.")
    ] = False,
    dry_run: _DryRun = False,
    yes: _Yes = False,
    catalog: _Catalog = None,
    json: _Json = False,
) -> None:
    """Make the catalog forget a table; a table without a catalog is only dropped with --purge."""
    raise typer.Exit(
        _tables("drop", table, purge=purge, dry_run=dry_run, yes=yes, catalog=catalog, as_json=json)
    )


@table_app.command("rename")
def table_rename(
    table: Annotated[str, typer.Argument(metavar="TABLE", help="The name in the catalog.")],
    new_name: Annotated[str, typer.Argument(metavar="NEW", help="The new one, with its namespace.")],
    catalog: _NeededCatalog,
    json: _Json = False,
) -> None:
    """Give a table another name in its catalog; its files stay where they are."""
    raise typer.Exit(_tables("rename", table, new_name, catalog=catalog, as_json=json))


@table_app.command("register")
def table_register(
    table: Annotated[str, typer.Argument(metavar="TABLE", help="The name that it gets.")],
    metadata_file: Annotated[
        str, typer.Argument(metavar="METADATA.json", help="The newest metadata file of the table.")
    ],
    catalog: _NeededCatalog,
    json: _Json = False,
) -> None:
    """Make a catalog know a table that is there already."""
    raise typer.Exit(_tables("register", table, metadata_file, catalog=catalog, as_json=json))


@table_app.command("properties")
def table_properties(
    table: _Table,
    set_: Annotated[
        list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help="Set a property.")
    ] = None,
    unset: Annotated[list[str] | None, typer.Option(metavar="NAME", help="Remove a property.")] = None,
    catalog: _Catalog = None,
    json: _Json = False,
) -> None:
    """Show the properties of a table, and set or remove some."""
    given = {"updates": tuple(set_ or ()), "removals": tuple(unset or ())}
    raise typer.Exit(_changes("properties", table, **given, catalog=catalog, as_json=json))


@table_app.command("upgrade")
def table_upgrade(
    table: _Table,
    format_version: Annotated[int, typer.Option(metavar="N", help="The format version.")] = 3,
    yes: _Yes = False,
    catalog: _Catalog = None,
    json: _Json = False,
) -> None:
    """Upgrade the format version of a table; there is no way back."""
    raise typer.Exit(
        _changes("upgrade", table, format_version=format_version, yes=yes, catalog=catalog, as_json=json)
    )


@table_app.command("schema")
def table_schema(
    table: _Table,
    drop: Annotated[list[str] | None, typer.Option(metavar="COLUMN", help="Drop a column.")] = None,
    rename: Annotated[list[str] | None, typer.Option(metavar="COLUMN=NAME", help="Rename a column.")] = None,
    widen: Annotated[
        list[str] | None, typer.Option(metavar="'COLUMN TYPE'", help="Give a column a wider type: 'n long'.")
    ] = None,
    add: Annotated[
        list[str] | None,
        typer.Option(metavar="'COLUMN TYPE'", help="Add a column: 'note string', 'address.zip string'."),
    ] = None,
    doc: Annotated[
        list[str] | None, typer.Option(metavar="COLUMN=TEXT", help="Set the doc of a column.")
    ] = None,
    default: Annotated[
        list[str] | None,
        typer.Option(metavar="COLUMN=VALUE", help="Set the default of a column (version 3)."),
    ] = None,
    optional: Annotated[
        list[str] | None, typer.Option(metavar="COLUMN", help="Make a column optional.")
    ] = None,
    required: Annotated[
        list[str] | None,
        typer.Option(metavar="COLUMN", help="Make a column required; refused where it has nulls."),
    ] = None,
    first: Annotated[
        list[str] | None, typer.Option(metavar="COLUMN", help="Move a column to the front.")
    ] = None,
    before: Annotated[
        list[str] | None, typer.Option(metavar="COLUMN=OTHER", help="Move a column before another.")
    ] = None,
    after: Annotated[
        list[str] | None, typer.Option(metavar="COLUMN=OTHER", help="Move a column behind another.")
    ] = None,
    identifier_fields: Annotated[
        str | None, typer.Option(metavar="A,B", help="Set the columns that identify rows; '' for none.")
    ] = None,
    catalog: _Catalog = None,
    json: _Json = False,
) -> None:
    """Show the schema of a table, and change it in one commit: options are applied in the order of this
    list.
    """
    raise typer.Exit(
        _changes(
            "schema",
            table,
            drop=tuple(drop or ()),
            rename=tuple(rename or ()),
            widen=tuple(widen or ()),
            add=tuple(add or ()),
            doc=tuple(doc or ()),
            default=tuple(default or ()),
            optional=tuple(optional or ()),
            required=tuple(required or ()),
            first=tuple(first or ()),
            before=tuple(before or ()),
            after=tuple(after or ()),
            identifier_fields=identifier_fields,
            catalog=catalog,
            as_json=json,
        )
    )


@table_app.command("partitions")
def table_partitions(
    table: _Table,
    remove: Annotated[
        list[str] | None, typer.Option(metavar="FIELD", help="Remove a field, by its name or as day(at).")
    ] = None,
    rename: Annotated[list[str] | None, typer.Option(metavar="FIELD=NAME", help="Rename a field.")] = None,
    add: Annotated[
        list[str] | None, typer.Option(metavar="TERM", help="Add a field: day(at), or name=bucket(16, id).")
    ] = None,
    catalog: _Catalog = None,
    json: _Json = False,
) -> None:
    """Show how a table is partitioned, and change it for rows written later, in the order of this list."""
    given = {"remove": tuple(remove or ()), "rename": tuple(rename or ()), "add": tuple(add or ())}
    raise typer.Exit(_changes("partitions", table, **given, catalog=catalog, as_json=json))


@table_app.command("sort-order")
def table_sort_order(
    table: _Table,
    by: Annotated[
        list[str] | None, typer.Option(metavar="TERM", help="Sort by 'at desc nulls last'; repeat it.")
    ] = None,
    unsorted: Annotated[bool, typer.Option("--unsorted", help="Sort no more.")] = False,
    catalog: _Catalog = None,
    json: _Json = False,
) -> None:
    """Show the sort order of a table, and replace it for files written later."""
    raise typer.Exit(
        _changes("sort_order", table, by=tuple(by or ()), unsorted=unsorted, catalog=catalog, as_json=json)
    )


@table_app.command("rollback")
def table_rollback(
    table: _Table,
    to_snapshot: Annotated[
        int | None, typer.Option(metavar="ID", help="To this snapshot, which the branch is built on.")
    ] = None,
    to_time: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="To the newest snapshot from before a time, or an age such as 2h."),
    ] = None,
    branch: _Branch = "main",
    yes: _Yes = False,
    catalog: _Catalog = None,
    json: _Json = False,
) -> None:
    """Put a branch back to an earlier snapshot."""
    raise typer.Exit(
        _changes(
            "rollback",
            table,
            to_snapshot=to_snapshot,
            to_time=to_time,
            branch=branch,
            yes=yes,
            catalog=catalog,
            as_json=json,
        )
    )


@table_app.command("delete")
def table_delete(
    table: _Table,
    row_filter: Annotated[str, typer.Argument(metavar="FILTER", help="Which rows: \"day < '2024-01-01'\".")],
    branch: _Branch = "main",
    mode: Annotated[
        str | None,
        typer.Option(help="copy-on-write or merge-on-read (default: the property write.delete.mode)."),
    ] = None,
    dry_run: _DryRun = False,
    yes: _Yes = False,
    catalog: _Catalog = None,
    json: _Json = False,
) -> None:
    """Delete the rows for which a filter is true."""
    raise typer.Exit(
        _changes(
            "delete",
            table,
            row_filter,
            branch=branch,
            mode=mode,
            dry_run=dry_run,
            yes=yes,
            catalog=catalog,
            as_json=json,
        )
    )


def _tables(function: str, *arguments: Any, **options: Any) -> int:
    return _run("catalog_tables", function, arguments, options)


def _changes(function: str, *arguments: Any, **options: Any) -> int:
    return _run("table_changes", function, arguments, options)


def _run(module: str, function: str, arguments: tuple[Any, ...], options: dict[str, Any]) -> int:
    found = import_module(f"streamlake.cli.commands.administration.{module}")
    code: int = getattr(found, function)(*arguments, **options)
    return code
