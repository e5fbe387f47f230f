"""The command `streamlake maintain`: parses its arguments; `commands.maintain` is loaded on use."""

from __future__ import annotations

from importlib import import_module
from typing import Annotated

import typer


def maintain(
    what: Annotated[
        str,
        typer.Argument(
            metavar="TABLE|PIPELINE.yaml",
            help="A table's directory or its name in a catalog, or a pipeline file: all of its tables and "
            "their rejects.",
        ),
    ],
    only: Annotated[
        str | None,
        typer.Option(
            metavar="A,B",
            help="Only these of rejects, compact, deletes, manifests, expire, metadata and orphans.",
        ),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Change nothing, say what would be done.")
    ] = False,
    yes: Annotated[
        bool, typer.Option("--yes", help="Delete orphans, too; without, they are only listed.")
    ] = False,
    older_than: Annotated[
        str | None,
        typer.Option(
            metavar="AGE",
            help="Expire snapshots older than this: 5d, 12h, or a time (default: as the table says).",
        ),
    ] = None,
    retain_last: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="... but not the newest N of any branch.")
    ] = None,
    orphan_age: Annotated[
        str | None,
        typer.Option(metavar="AGE", help="Orphans are older than this (default: 3d, at least 24h)."),
    ] = None,
    rejects_age: Annotated[
        str | None,
        typer.Option(
            metavar="AGE",
            help="Of a rejects table, drop days older than this: 30d (default: as the table says).",
        ),
    ] = None,
    branch: Annotated[
        str | None, typer.Option(metavar="NAME", help="The branch whose files are rewritten (default: main).")
    ] = None,
    watch: Annotated[
        bool, typer.Option("--watch", help="Do it again and again, until Ctrl-C or SIGTERM.")
    ] = False,
    interval: Annotated[
        float, typer.Option(metavar="SECONDS", min=1.0, help="With --watch: the pause between two rounds.")
    ] = 600.0,
    strategy: Annotated[
        str, typer.Option(metavar="NAME", help="How files are compacted: binpack or sort.")
    ] = "binpack",
    sort_by: Annotated[
        str | None,
        typer.Option(
            metavar="A,B", help="What to sort by, such as 'ts desc,id' (default: the table's sort order)."
        ),
    ] = None,
    filter: Annotated[
        str | None, typer.Option(metavar="FILTER", help="Compact these partitions only: \"region = 'eu'\".")
    ] = None,
    option: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=VALUE", help="An option of the compaction, by Iceberg's name."),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object, with every orphan.")] = False,
    catalog: Annotated[
        str | None, typer.Option(help="A catalog's name, or its properties: type=hadoop,warehouse=DIR.")
    ] = None,
) -> None:
    """Keep tables healthy: compact, convert deletes, rewrite manifests, expire snapshots, delete old metadata
    files and orphans.
    """
    raise typer.Exit(
        import_module("streamlake.cli.commands.maintain").run(
            what,
            only=only,
            dry_run=dry_run,
            yes=yes,
            older_than=older_than,
            retain_last=retain_last,
            orphan_age=orphan_age,
            rejects_age=rejects_age,
            branch=branch,
            watch=watch,
            interval=interval,
            strategy=strategy,
            sort_by=sort_by,
            filter=filter,
            options=option or [],
            as_json=json,
            catalog=catalog,
        )
    )
