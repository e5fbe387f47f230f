"""`streamlake table list`, `create`, `drop`, `rename`, `register`: tables as their catalog knows them."""

from __future__ import annotations

from dataclasses import replace

from streamlake.catalogs import list_tables, register_table, rename_table
from streamlake.cli.arguments import option_value, parse_catalog
from streamlake.cli.commands.administration.answers import answer, confirmed, names, pairs
from streamlake.cli.views.task_progress import step_progress
from streamlake.errors import InvalidOptionError
from streamlake.maintain.table_drop import drop_table
from streamlake.spec.types.schema import Schema
from streamlake.tables import create_table, table_schema
from streamlake.wording import counted


def show_tables(namespace: str | None, *, catalog: str | None, as_json: bool) -> int:
    """List the tables of a namespace, or all."""
    found = list_tables(parse_catalog(catalog), namespace)
    return answer("\n".join(found) or "no tables", found, as_json=as_json)


def create(
    table: str,
    *,
    schema: str,
    partition_by: tuple[str, ...],
    sort_by: tuple[str, ...],
    identifier_fields: str | None,
    properties: tuple[str, ...],
    format_version: int | None,
    catalog: str | None,
    as_json: bool,
) -> int:
    """Create an empty table."""
    given = pairs(properties, "--property")
    if format_version is not None:
        given["format-version"] = str(format_version)
    columns = _identified(table_schema(option_value(schema, "--schema")), names(identifier_fields))
    made = create_table(table, columns, parse_catalog(catalog), partition_by, sort_by, properties=given)
    content = {"table": made.name, "location": made.location, "format_version": made.format_version}
    return answer(f"created {made.name} at {made.location}", content, as_json=as_json)


def _identified(schema: Schema, columns: tuple[str, ...]) -> Schema:
    ids = []
    for name in columns:
        found = schema.find(name)
        if found is None or not found.required:
            raise InvalidOptionError(f"--identifier-fields: '{name}' is not a column that is 'not null'")
        ids.append(found.field_id)
    return replace(schema, identifier_field_ids=tuple(ids))


def drop(table: str, *, purge: bool, dry_run: bool, yes: bool, catalog: str | None, as_json: bool) -> int:
    """Drop a table, with its files or without."""
    options = parse_catalog(catalog)
    with step_progress("table drop") as on_progress:
        planned = drop_table(table, options, purge=purge, dry_run=True, on_progress=on_progress)
    what = f"forget {table}; its files stay"
    if purge:
        files = "its files (by the server)" if planned.by_server else counted(len(planned.files), "file")
        what = f"drop {table} and delete {files}, those of all its snapshots"
    content = {"table": table, "purge": purge, "files": len(planned.files), "dry_run": dry_run}
    if dry_run:
        return answer(f"would {what}", {**content, "dropped": False}, as_json=as_json)
    if not confirmed(f"This will {what}.", yes=yes, as_json=as_json):
        return answer("", {**content, "dropped": False}, as_json=as_json) if as_json else 0
    with step_progress("table drop") as on_progress:
        done = drop_table(table, options, purge=purge, on_progress=on_progress)
    content |= {"files": done.deleted.files, "dropped": True}
    said = f"dropped {table}"
    if purge:
        said += (
            "; the server deletes its files"
            if done.by_server
            else f", deleted {counted(done.deleted.files, 'file')}"
        )
    return answer(said, content, as_json=as_json)


def rename(table: str, new_name: str, *, catalog: str | None, as_json: bool) -> int:
    """Give a table another name."""
    rename_table(table, new_name, parse_catalog(catalog))
    return answer(f"renamed {table} to {new_name}", {"from": table, "to": new_name}, as_json=as_json)


def register(table: str, metadata_file: str, *, catalog: str | None, as_json: bool) -> int:
    """Make a catalog know an existing table."""
    found = register_table(table, metadata_file, parse_catalog(catalog))
    content = {"table": table, "location": found.location, "metadata_file": metadata_file}
    return answer(f"registered {table} at {found.location}", content, as_json=as_json)
