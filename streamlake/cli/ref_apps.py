"""The commands of `streamlake branch` and `streamlake tag`: parses their arguments."""

from __future__ import annotations

from importlib import import_module
from typing import Annotated, Any

import typer

branch_app = typer.Typer(help="Look after the branches of a table; `inspect TABLE refs` lists them.")
tag_app = typer.Typer(help="Look after the tags of a table; `inspect TABLE refs` lists them.")

_Table = Annotated[str, typer.Argument(metavar="TABLE", help="A table's directory, or a catalog's name.")]
_Branch = Annotated[str, typer.Argument(metavar="BRANCH", help="The branch.")]
_Tag = Annotated[str, typer.Argument(metavar="TAG", help="The tag.")]
_Snapshot = Annotated[int, typer.Argument(metavar="SNAPSHOT", help="The id of a snapshot.")]
_At = Annotated[int | None, typer.Option(metavar="ID", help="The snapshot (default: the newest of main).")]
_MaxAge = Annotated[
    str | None,
    typer.Option(metavar="AGE", help="Drop it once its snapshot is older: 30d (default: by the table)."),
]
_Keep = Annotated[
    int | None, typer.Option(metavar="N", min=1, help="So many of its newest snapshots never expire.")
]
_SnapshotAge = Annotated[
    str | None, typer.Option(metavar="AGE", help="Its snapshots may expire once they are older: 5d.")
]
_DryRun = Annotated[bool, typer.Option("--dry-run", help="Change nothing, say what would be done.")]
_Catalog = Annotated[
    str | None, typer.Option(help="A catalog's name, or its properties: type=hadoop,warehouse=DIR.")
]
_Json = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]
_Yes = Annotated[bool, typer.Option("--yes", help="Do it; without, only say what would be done.")]


@branch_app.command("create")
def branch_create(
    table: _Table,
    branch: _Branch,
    snapshot_id: _At = None,
    max_age: _MaxAge = None,
    min_snapshots: _Keep = None,
    max_snapshot_age: _SnapshotAge = None,
    catalog: _Catalog = None,
    json: _Json = False,
) -> None:
    """Create a branch."""
    kept = {"max_age": max_age, "min_snapshots": min_snapshots, "max_snapshot_age": max_snapshot_age}
    _run("create", "branch", table, branch, snapshot_id=snapshot_id, **kept, catalog=catalog, as_json=json)


@branch_app.command("set")
def branch_set(
    table: _Table,
    branch: _Branch,
    snapshot: _Snapshot,
    yes: _Yes = False,
    catalog: _Catalog = None,
    json: _Json = False,
) -> None:
    """Point a branch at any snapshot of the table; main too, whose snapshot is the table's current one."""
    _run("move", "branch", table, branch, snapshot, yes=yes, catalog=catalog, as_json=json)


@branch_app.command("fast-forward")
def branch_fast_forward(
    table: _Table,
    branch: _Branch,
    to: Annotated[str, typer.Argument(metavar="TO", help="A branch or tag that is built on it.")],
    catalog: _Catalog = None,
    json: _Json = False,
) -> None:
    """Move a branch forward to another branch or tag: publish what was written there."""
    _run("fast_forward", table, branch, to, catalog=catalog, as_json=json)


@branch_app.command("retain")
def branch_retain(
    table: _Table,
    branch: _Branch,
    max_age: _MaxAge = None,
    min_snapshots: _Keep = None,
    max_snapshot_age: _SnapshotAge = None,
    catalog: _Catalog = None,
    json: _Json = False,
) -> None:
    """Set how long a branch and its snapshots are kept; what is left out goes by the table's rules."""
    kept = {"max_age": max_age, "min_snapshots": min_snapshots, "max_snapshot_age": max_snapshot_age}
    _run("retain", "branch", table, branch, **kept, catalog=catalog, as_json=json)


@branch_app.command("drop")
def branch_drop(
    table: _Table, branch: _Branch, yes: _Yes = False, catalog: _Catalog = None, json: _Json = False
) -> None:
    """Drop a branch, never main."""
    _run("drop", "branch", table, branch, yes=yes, catalog=catalog, as_json=json)


@branch_app.command("expire")
def branch_expire(
    table: _Table, dry_run: _DryRun = False, catalog: _Catalog = None, json: _Json = False
) -> None:
    """Drop the branches that are past their age."""
    _run("expire", "branch", table, dry_run=dry_run, catalog=catalog, as_json=json)


@tag_app.command("create")
def tag_create(
    table: _Table,
    tag: _Tag,
    snapshot_id: _At = None,
    max_age: _MaxAge = None,
    catalog: _Catalog = None,
    json: _Json = False,
) -> None:
    """Create a tag."""
    kept = {"max_age": max_age, "min_snapshots": None, "max_snapshot_age": None}
    _run("create", "tag", table, tag, snapshot_id=snapshot_id, **kept, catalog=catalog, as_json=json)


@tag_app.command("set")
def tag_set(
    table: _Table,
    tag: _Tag,
    snapshot: _Snapshot,
    yes: _Yes = False,
    catalog: _Catalog = None,
    json: _Json = False,
) -> None:
    """Point a tag at another snapshot of the table."""
    _run("move", "tag", table, tag, snapshot, yes=yes, catalog=catalog, as_json=json)


@tag_app.command("retain")
def tag_retain(
    table: _Table, tag: _Tag, max_age: _MaxAge = None, catalog: _Catalog = None, json: _Json = False
) -> None:
    """Set how long a tag is kept; without --max-age by the table's rule."""
    kept = {"max_age": max_age, "min_snapshots": None, "max_snapshot_age": None}
    _run("retain", "tag", table, tag, **kept, catalog=catalog, as_json=json)


@tag_app.command("drop")
def tag_drop(
    table: _Table, tag: _Tag, yes: _Yes = False, catalog: _Catalog = None, json: _Json = False
) -> None:
    """Drop a tag."""
    _run("drop", "tag", table, tag, yes=yes, catalog=catalog, as_json=json)


@tag_app.command("expire")
def tag_expire(
    table: _Table, dry_run: _DryRun = False, catalog: _Catalog = None, json: _Json = False
) -> None:
    """Drop the tags that are past their age."""
    _run("expire", "tag", table, dry_run=dry_run, catalog=catalog, as_json=json)


def _run(function: str, *arguments: Any, **options: Any) -> None:
    module = import_module("streamlake.cli.commands.administration.branches_and_tags")
    raise typer.Exit(getattr(module, function)(*arguments, **options))
