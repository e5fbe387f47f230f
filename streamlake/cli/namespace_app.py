"""The commands of `streamlake namespace`: parses their arguments, and loads what they do on use."""

from __future__ import annotations

from importlib import import_module
from typing import Annotated, Any

import typer

namespace_app = typer.Typer(help="Look after the namespaces of a catalog.")

_Name = Annotated[str, typer.Argument(metavar="NAMESPACE", help="A namespace: db, or outer.inner.")]
_Catalog = Annotated[
    str, typer.Option(help="A catalog's name, or its properties: type=hadoop,warehouse=DIR.")
]
_Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
_Yes = Annotated[bool, typer.Option("--yes", help="Do it; without, only say what would be done.")]


@namespace_app.command("list")
def namespace_list(
    catalog: _Catalog,
    parent: Annotated[
        str | None, typer.Argument(metavar="[NAMESPACE]", help="Those directly in this one.")
    ] = None,
    json: _Json = False,
) -> None:
    """List namespaces."""
    raise typer.Exit(_run("show_namespaces", parent, catalog=catalog, as_json=json))


@namespace_app.command("create")
def namespace_create(
    name: _Name,
    catalog: _Catalog,
    property_: Annotated[
        list[str] | None, typer.Option("--property", metavar="NAME=VALUE", help="A property of it.")
    ] = None,
    json: _Json = False,
) -> None:
    """Create a namespace."""
    raise typer.Exit(_run("create", name, properties=tuple(property_ or ()), catalog=catalog, as_json=json))


@namespace_app.command("drop")
def namespace_drop(name: _Name, catalog: _Catalog, yes: _Yes = False, json: _Json = False) -> None:
    """Drop an empty namespace."""
    raise typer.Exit(_run("drop", name, yes=yes, catalog=catalog, as_json=json))


@namespace_app.command("properties")
def namespace_properties(
    name: _Name,
    catalog: _Catalog,
    set_: Annotated[
        list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help="Set a property.")
    ] = None,
    unset: Annotated[list[str] | None, typer.Option(metavar="NAME", help="Remove a property.")] = None,
    json: _Json = False,
) -> None:
    """Show the properties of a namespace, and set or remove some."""
    raise typer.Exit(
        _run(
            "properties",
            name,
            updates=tuple(set_ or ()),
            removals=tuple(unset or ()),
            catalog=catalog,
            as_json=json,
        )
    )


def _run(function: str, *arguments: Any, **options: Any) -> int:
    module = import_module("streamlake.cli.commands.administration.namespaces")
    code: int = getattr(module, function)(*arguments, **options)
    return code
