"""`streamlake table properties`, `upgrade`, `schema`, `partitions`, `sort-order`, `rollback`, `delete`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict

from streamlake.cli.commands.administration.answers import (
    answer,
    confirmed,
    default_value,
    listed_properties,
    names,
    opened,
    pairs,
    stream_warning,
)
from streamlake.cli.views.task_progress import step_progress
from streamlake.errors import InvalidOptionError
from streamlake.maintain.ages import before_ms
from streamlake.maintain.row_deletion import RowDeletion, delete_rows
from streamlake.read.natural_values import instant
from streamlake.spec.partitioning.partition_spec import spec_to_json
from streamlake.spec.partitioning.sort_order import sort_order_to_json
from streamlake.spec.types.ddl import parse_ddl
from streamlake.spec.types.type_json import schema_to_json
from streamlake.spec.types.type_text import columns_text
from streamlake.table.schema.update_schema import UpdateSchema
from streamlake.table.updates.manage_refs import ManageRefs
from streamlake.table.updates.replace_sort_order import ReplaceSortOrder
from streamlake.table.updates.update_partition_spec import UpdatePartitionSpec
from streamlake.table.updates.update_properties import UpdateProperties
from streamlake.tables import LoadedTable
from streamlake.wording import counted


def properties(
    location: str, *, updates: Sequence[str], removals: Sequence[str], catalog: str | None, as_json: bool
) -> int:
    """Show the properties of a table, after setting and removing some."""
    table = opened(location, catalog)
    change = UpdateProperties(table.table)
    for key, value in pairs(updates, "--set").items():
        change.set(key, value)
    for key in removals:
        change.remove(key)
    if updates or removals:
        change.commit()
    found = table.refresh().properties
    return answer(listed_properties(found), dict(found), as_json=as_json)


def upgrade(location: str, *, format_version: int, yes: bool, catalog: str | None, as_json: bool) -> int:
    """Upgrade the format version of a table."""
    table = opened(location, catalog)
    content = {"table": location, "format_version": table.format_version, "upgraded": False}
    if table.format_version == format_version:
        return answer(f"{location} has format version {format_version} already", content, as_json=as_json)
    plan = (
        f"This will upgrade {location} from format version {table.format_version} to {format_version}. There "
        "is no way back, and readers that do not know the version can no longer read the table."
    )
    if not confirmed(plan, yes=yes, as_json=as_json):
        return answer("", content, as_json=as_json) if as_json else 0
    UpdateProperties(table.table).upgrade_format_version(format_version).commit()
    content |= {"format_version": format_version, "upgraded": True}
    return answer(f"{location} has format version {format_version} now", content, as_json=as_json)


def schema(
    location: str,
    *,
    drop: Sequence[str],
    rename: Sequence[str],
    widen: Sequence[str],
    add: Sequence[str],
    doc: Sequence[str],
    default: Sequence[str],
    optional: Sequence[str],
    required: Sequence[str],
    first: Sequence[str],
    before: Sequence[str],
    after: Sequence[str],
    identifier_fields: str | None,
    catalog: str | None,
    as_json: bool,
) -> int:
    """Show the schema of a table, after changing it; the changes are one new schema, in the order given
    here.
    """
    table = opened(location, catalog)
    change = UpdateSchema(table.table)
    defaults = pairs(default, "--default")
    for name in drop:
        change.delete(name)
    for name, to in pairs(rename, "--rename").items():
        change.rename(name, to)
    for text in widen:
        name, _, type_ = text.strip().partition(" ")
        change.widen(name, _typed(text, type_, "--widen"))
    for text in add:
        _add(change, text, defaults)
    for name, words in pairs(doc, "--doc").items():
        change.describe(name, words or None)
    for name, value in defaults.items():
        found = table.schema.find(name)
        if found is None:
            raise InvalidOptionError(f"--default: the table has no column '{name}', and none is added")
        change.set_default(name, default_value(found.type, value) if value else None)
    for name in optional:
        change.make_optional(name)
    for name in required:
        change.make_required(name)
    for name in first:
        change.move_first(name)
    for name, other in pairs(before, "--before").items():
        change.move_before(name, other)
    for name, other in pairs(after, "--after").items():
        change.move_after(name, other)
    if identifier_fields is not None:
        change.set_identifier_fields(names(identifier_fields))
    given = (drop, rename, widen, add, doc, default, optional, required, first, before, after)
    done: list[str] = []
    if any(given) or identifier_fields is not None:
        table.refresh()
        done = change.apply()[1]
        change.commit()
    table.refresh()
    sentence = "\n".join([*done, columns_text(table.schema).replace(", ", ",\n") if not done else ""]).strip()
    return answer(sentence, {"changes": done, "schema": schema_to_json(table.schema)}, as_json=as_json)


def _add(change: UpdateSchema, text: str, defaults: dict[str, str]) -> None:
    """Add the column of "name type [not null] [comment '...']"; a dot in the name leads into a struct."""
    name, _, rest = text.strip().partition(" ")
    part = parse_ddl(f"c {_typed(text, rest, '--add')}").fields[0]
    parent, _, own = name.rpartition(".")
    value = defaults.pop(name, None)
    change.add_column(
        own,
        part.type,
        parent=parent or None,
        required=part.required,
        doc=part.doc,
        default=None if value is None else default_value(part.type, value),
    )


def _typed(text: str, type_: str, option: str) -> str:
    if not type_.strip():
        raise InvalidOptionError(
            f"{option} '{text}' has no type; write it as 'name type', such as 'note string'"
        )
    return type_.strip()


def partitions(
    location: str,
    *,
    remove: Sequence[str],
    rename: Sequence[str],
    add: Sequence[str],
    catalog: str | None,
    as_json: bool,
) -> int:
    """Show the partition spec of a table, after changing it."""
    table = opened(location, catalog)
    change = UpdatePartitionSpec(table.table)
    for name in remove:
        change.remove_field(name)
    for name, to in pairs(rename, "--rename").items():
        change.rename_field(name, to)
    for text in add:
        name, equals, term = text.partition("=")
        change.add_field(term.strip() if equals else text, name.strip() if equals else None)
    if remove or rename or add:
        change.commit()
    spec = table.refresh().spec
    lines = [f"{part.name}: {_term(table, part.transform, part.source_id)}" for part in spec.fields]
    return answer("\n".join(lines) or "not partitioned", spec_to_json(spec), as_json=as_json)


def sort_order(
    location: str, *, by: Sequence[str], unsorted: bool, catalog: str | None, as_json: bool
) -> int:
    """Show the sort order of a table, after replacing it."""
    if by and unsorted:
        raise InvalidOptionError("--by and --unsorted exclude each other")
    table = opened(location, catalog)
    if by or unsorted:
        ReplaceSortOrder(table.table).by(*by).commit()
    order = table.refresh().sort_order
    lines = [
        f"{_term(table, part.transform, part.source_id)} {part.direction} {part.null_order.replace('-', ' ')}"
        for part in order.fields
    ]
    return answer("\n".join(lines) or "unsorted", sort_order_to_json(order), as_json=as_json)


def _term(table: LoadedTable, transform: object, source_id: int) -> str:
    column = table.schema.name_of(source_id) or f"field {source_id}"
    kind, _, width = str(transform).rstrip("]").partition("[")
    if kind == "identity":
        return column
    return f"{kind}({width}, {column})" if width else f"{kind}({column})"


def rollback(
    location: str,
    *,
    to_snapshot: int | None,
    to_time: str | None,
    branch: str,
    yes: bool,
    catalog: str | None,
    as_json: bool,
) -> int:
    """Put a branch back to an earlier snapshot."""
    if (to_snapshot is None) == (to_time is None):
        raise InvalidOptionError("give --to-snapshot ID or --to-time TIME")
    table = opened(location, catalog)
    change = ManageRefs(table.table)
    if to_snapshot is not None:
        change.rollback_to(to_snapshot, branch)
    else:
        change.rollback_to_time(before_ms(to_time, "--to-time") or 0, branch)
    target = change.apply().refs[branch].snapshot_id
    head = table.metadata.head(branch)
    snapshot = table.metadata.snapshot(target)
    moment = "" if snapshot is None else f" of {instant(snapshot.timestamp_ms).isoformat()}"
    content = {"table": location, "branch": branch, "from": head and head.snapshot_id, "to": target}
    plan = (
        f"This will put branch {branch} of {location} back from snapshot {head and head.snapshot_id} to "
        f"{target}"
        f"{moment}.{stream_warning(table.metadata, branch)}"
    )
    if not confirmed(plan, yes=yes, as_json=as_json):
        return answer("", {**content, "done": False}, as_json=as_json) if as_json else 0
    change.commit()
    said = f"branch {branch} of {location} is at snapshot {target}{moment} now"
    return answer(said, {**content, "done": True}, as_json=as_json)


def delete(
    location: str,
    row_filter: str,
    *,
    branch: str,
    mode: str | None,
    dry_run: bool,
    yes: bool,
    catalog: str | None,
    as_json: bool,
) -> int:
    """Delete rows by a filter."""
    table = opened(location, catalog).table

    def run(*, plan_only: bool) -> RowDeletion:
        with step_progress("table delete") as on_progress:
            return delete_rows(
                table, row_filter, branch=branch, mode=mode, dry_run=plan_only, on_progress=on_progress
            )

    if dry_run or not yes:
        planned = run(plan_only=True)
        said = f"would delete {_deleted(planned)}"
        if dry_run:
            return answer(said, asdict(planned), as_json=as_json)
        if not confirmed(f"{location}: {said}", yes=yes, as_json=as_json):
            return answer("", asdict(planned), as_json=as_json) if as_json else 0
    done = run(plan_only=False)
    return answer(f"deleted {_deleted(done)}", asdict(done), as_json=as_json)


def _deleted(done: RowDeletion) -> str:
    rows = "rows" if done.rows is None else counted(done.rows, "row")
    if not (done.removed_files or done.changed_files):
        return f"no rows: none matches {done.filter}"
    parts = []
    if done.removed_files:
        parts.append(f"{counted(done.removed_files, 'file')} whole")
    if done.changed_files:
        parts.append(f"some rows of {counted(done.changed_files, 'file')} ({done.mode})")
    return f"{rows}: {' and '.join(parts)}"
