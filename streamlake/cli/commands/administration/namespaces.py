"""`streamlake namespace`: lists, creates, drops namespaces; shows and changes their properties."""

from __future__ import annotations

from collections.abc import Sequence

from streamlake.catalogs import (
    create_namespace,
    drop_namespace,
    list_namespaces,
    namespace_properties,
    update_namespace_properties,
)
from streamlake.cli.arguments import parse_catalog
from streamlake.cli.commands.administration.answers import answer, confirmed, listed_properties, pairs


def show_namespaces(parent: str | None, *, catalog: str | None, as_json: bool) -> int:
    """List the namespaces in one, or at the top."""
    found = list_namespaces(parse_catalog(catalog), parent or "")
    return answer("\n".join(found) or "no namespaces", found, as_json=as_json)


def create(name: str, *, properties: Sequence[str], catalog: str | None, as_json: bool) -> int:
    """Create a namespace."""
    given = pairs(properties, "--property")
    create_namespace(name, parse_catalog(catalog), given)
    return answer(f"created namespace {name}", {"namespace": name, "properties": given}, as_json=as_json)


def drop(name: str, *, yes: bool, catalog: str | None, as_json: bool) -> int:
    """Drop an empty namespace."""
    if not confirmed(f"This will drop the namespace {name}, if it is empty.", yes=yes, as_json=as_json):
        return answer("", {"namespace": name, "dropped": False}, as_json=as_json) if as_json else 0
    drop_namespace(name, parse_catalog(catalog))
    return answer(f"dropped namespace {name}", {"namespace": name, "dropped": True}, as_json=as_json)


def properties(
    name: str, *, updates: Sequence[str], removals: Sequence[str], catalog: str | None, as_json: bool
) -> int:
    """Show the properties of a namespace, after setting and removing some."""
    options = parse_catalog(catalog)
    if updates or removals:
        update_namespace_properties(name, options, pairs(updates, "--set"), removals)
    found = namespace_properties(name, options)
    return answer(listed_properties(found), found, as_json=as_json)
