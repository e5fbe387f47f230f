"""`streamlake branch` and `streamlake tag`: both are refs, and most is the same for both."""

from __future__ import annotations

from typing import Any

from streamlake.cli.commands.administration.answers import answer, confirmed, opened, stream_warning
from streamlake.errors import ConflictValidationError, InvalidOptionError
from streamlake.maintain.ages import age_ms
from streamlake.spec.metadata.snapshot import ref_to_json
from streamlake.table.updates.manage_refs import ManageRefs
from streamlake.tables import LoadedTable


def create(
    kind: str,
    location: str,
    name: str,
    *,
    snapshot_id: int | None,
    max_age: str | None,
    min_snapshots: int | None,
    max_snapshot_age: str | None,
    catalog: str | None,
    as_json: bool,
) -> int:
    """Create a branch or tag."""
    table = opened(location, catalog)
    if name in table.refs:
        found = table.refs[name]
        raise ConflictValidationError(
            f"table {location} already has a {found.type} {name!r} (snapshot {found.snapshot_id}); "
            f"`streamlake {found.type} set` moves it, or choose another name"
        )
    change, age = ManageRefs(table.table), age_ms(max_age, "--max-age")
    if kind == "tag":
        change.create_tag(name, snapshot_id, max_ref_age_ms=age)
    else:
        change.create_branch(
            name,
            snapshot_id,
            max_ref_age_ms=age,
            min_snapshots_to_keep=min_snapshots,
            max_snapshot_age_ms=age_ms(max_snapshot_age, "--max-snapshot-age"),
        )
    change.commit()
    return _answered(table, kind, name, "created", as_json=as_json)


def move(
    kind: str, location: str, name: str, snapshot_id: int, *, yes: bool, catalog: str | None, as_json: bool
) -> int:
    """Point a branch or tag at another snapshot."""
    table = opened(location, catalog)
    change = ManageRefs(table.table)
    (change.set_tag if kind == "tag" else change.set_branch)(name, snapshot_id)
    change.apply()
    found = table.refs[name].snapshot_id
    plan = f"This will point {kind} {name} of {location} at snapshot {snapshot_id}; it is at {found}."
    warning = stream_warning(table.metadata, name) if kind == "branch" else ""
    if not confirmed(plan + warning, yes=yes, as_json=as_json):
        return 0
    change.commit()
    return _answered(table, kind, name, "moved", as_json=as_json)


def fast_forward(location: str, name: str, to: str, *, catalog: str | None, as_json: bool) -> int:
    """Move a branch forward to another one."""
    table = opened(location, catalog)
    ManageRefs(table.table).fast_forward(name, to).commit()
    return _answered(table, "branch", name, "moved", as_json=as_json)


def retain(
    kind: str,
    location: str,
    name: str,
    *,
    max_age: str | None,
    min_snapshots: int | None,
    max_snapshot_age: str | None,
    catalog: str | None,
    as_json: bool,
) -> int:
    """Set how long a branch or tag is kept."""
    table = opened(location, catalog)
    _require(table, kind, name)
    ManageRefs(table.table).set_retention(
        name,
        max_ref_age_ms=age_ms(max_age, "--max-age"),
        min_snapshots_to_keep=min_snapshots,
        max_snapshot_age_ms=age_ms(max_snapshot_age, "--max-snapshot-age"),
    ).commit()
    return _answered(table, kind, name, "changed", as_json=as_json)


def drop(kind: str, location: str, name: str, *, yes: bool, catalog: str | None, as_json: bool) -> int:
    """Drop a branch or tag."""
    table = opened(location, catalog)
    change = ManageRefs(table.table).remove(name)
    _require(table, kind, name)
    change.apply()
    plan = (
        f"This will drop {kind} {name} of {location} (snapshot {table.refs[name].snapshot_id}); its "
        "snapshots expire unless another branch or tag has them."
    )
    warning = stream_warning(table.metadata, name) if kind == "branch" else ""
    if not confirmed(plan + warning, yes=yes, as_json=as_json):
        return 0
    change.commit()
    return answer(f"dropped {kind} {name}", {"table": location, kind: name, "dropped": True}, as_json=as_json)


def expire(kind: str, location: str, *, dry_run: bool, catalog: str | None, as_json: bool) -> int:
    """Drop the branches or tags that are past their age."""
    gone = opened(location, catalog).expire_refs(kind, dry_run=dry_run)
    word = "would drop" if dry_run else "dropped"
    return answer(
        f"{word} {', '.join(gone) or f'no {kind}'}",
        {"table": location, "expired": list(gone), "dry_run": dry_run},
        as_json=as_json,
    )


def _require(table: LoadedTable, kind: str, name: str) -> None:
    found = table.refs.get(name)
    if found is None:
        known = ", ".join(sorted(table.refs)) or "none"
        raise InvalidOptionError(f"table {table.name} has no {kind} {name!r}; there are {known}")
    if found.type != kind:
        raise InvalidOptionError(f"table {table.name}: {name!r} is a {found.type} and no {kind}")


def _answered(table: LoadedTable, kind: str, name: str, done: str, *, as_json: bool) -> int:
    ref = table.refresh().refs[name]
    content: dict[str, Any] = {"table": table.name, "name": name, **ref_to_json(ref)}
    return answer(f"{done} {kind} {name}: snapshot {ref.snapshot_id}", content, as_json=as_json)
