"""The `streamlake` command: parses arguments, calls a command, shows errors in short, gives exit codes.

Exit codes: 0 success, 1 the command failed, 2 the command line is wrong (for commands that judge, which exit
with 1 for what they find: nothing could be judged), 128 + n stopped by signal n before the work was done.
Commands are loaded on use: `--version` and `inspect` import no Spark.
"""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from importlib import import_module
from typing import Annotated, Any

import typer
from typer.main import get_command

import streamlake
from streamlake.cli.index_app import index_app
from streamlake.cli.maintain_app import maintain
from streamlake.cli.namespace_app import namespace_app
from streamlake.cli.ref_apps import branch_app, tag_app
from streamlake.cli.rejects_app import rejects_app
from streamlake.cli.table_app import table_app
from streamlake.cli.views.described import describe
from streamlake.pipeline.spark.spark_traces import DEBUG_VARIABLE

FAILED, WRONG_USAGE, INTERRUPTED = 1, 2, 130

app = typer.Typer(
    name="streamlake",
    help="Exactly-once stream ingestion into Apache Iceberg tables.",
    invoke_without_command=True,
    add_completion=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def main(arguments: Sequence[str] | None = None) -> None:
    """The console script. It never returns: it exits with the code of the command."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    debug = "--debug" in given
    with _debugging() if debug else nullcontext():
        code = _run([argument for argument in given if argument != "--debug"], debug=debug)
    sys.exit(code)


@contextmanager
def _debugging() -> Iterator[None]:
    """Context manager: what Spark prints of an error is shown too."""
    before = os.environ.get(DEBUG_VARIABLE)
    os.environ[DEBUG_VARIABLE] = "1"
    try:
        yield
    finally:
        os.environ.pop(DEBUG_VARIABLE)
        if before is not None:
            os.environ[DEBUG_VARIABLE] = before


def _run(arguments: list[str], *, debug: bool) -> int:
    try:
        code = get_command(app).main(args=arguments, prog_name="streamlake", standalone_mode=False)
        sys.stdout.flush()
    except BrokenPipeError:
        # The reader of a pipe (`| head`) has closed it; nothing more can be printed.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAILED
    except (KeyboardInterrupt, typer.Abort):
        return _fail("interrupted", INTERRUPTED)
    except Exception as error:  # noqa: BLE001  the last door: whatever it is becomes one line
        if debug:
            traceback.print_exc()
        if hasattr(error, "format_message"):
            message = error.format_message()
            text = message if isinstance(error, _NoVerdict) else " ".join(message.split())
            return _fail(text, int(getattr(error, "exit_code", WRONG_USAGE)))
        return _fail(describe(error), FAILED)
    if code == INTERRUPTED:
        return _fail("interrupted", INTERRUPTED)
    return code if isinstance(code, int) else 0


def _fail(message: str, code: int) -> int:
    lines = [line.rstrip() for line in message.splitlines() if line.strip()]
    sys.stderr.write("error: " + "\n".join(lines) + "\n")
    return code


def _command(name: str) -> Any:
    """The `run` function of a command's module, imported now."""
    return import_module(f"streamlake.cli.commands.{name}").run


def _version(value: bool) -> None:
    if value:
        typer.echo(f"streamlake {streamlake.__version__}")
        raise typer.Exit


@app.callback()
def options(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version and exit.")
    ] = False,
    debug: Annotated[
        bool, typer.Option("--debug", help="Show a traceback, and Spark's, with an error; accepted anywhere.")
    ] = False,
) -> None:
    """Exactly-once stream ingestion into Apache Iceberg tables, on Spark Structured Streaming."""
    if context.invoked_subcommand is None:
        typer.echo(context.get_help(), err=True)
        raise typer.Exit(WRONG_USAGE)


@app.command()
def demo(
    json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object instead of the picture.")
    ] = False,
    warehouse: Annotated[
        str | None, typer.Option(metavar="DIR", help="Where the table goes (default: ./streamlake-demo).")
    ] = None,
    rows: Annotated[int, typer.Option(metavar="N", min=1, help="How many changes to stream.")] = 1_000_000,
) -> None:
    """Upsert a million changes into a table of orders, kill the query on the way, and check every row."""
    raise typer.Exit(_command("demo")(as_json=json, warehouse=warehouse, rows=rows))


@app.command()
def run(
    pipeline: Annotated[str, typer.Argument(metavar="PIPELINE.yaml", help="The pipeline file.")],
) -> None:
    """Run a pipeline file: a Kafka topic, a directory of files or a rate source into a table."""
    raise typer.Exit(_command("run")(pipeline))


@app.command("warm-up")
def warm_up() -> None:
    """Make pipelines on this machine start faster: record once what the JVM loads (half a minute, 150 MB)."""
    raise typer.Exit(_command("warm_up")())


@app.command()
def check(
    pipeline: Annotated[str, typer.Argument(metavar="PIPELINE.yaml", help="The pipeline file.")],
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Check a pipeline file against its broker, catalog, table and checkpoint directory. Start nothing."""
    command = _command("check")
    raise typer.Exit(_judged(lambda: command(pipeline, as_json=json)))


@app.command()
def schema() -> None:
    """Print the JSON schema of pipeline files."""
    raise typer.Exit(_command("schema")())


@app.command()
def inspect(
    table: Annotated[str, typer.Argument(metavar="TABLE", help="A table's directory, or a catalog's name.")],
    what: Annotated[
        str,
        typer.Argument(
            metavar="[WHAT]", help="snapshots, history, files, manifests, partitions, refs or schema."
        ),
    ] = "table",
    json: Annotated[bool, typer.Option("--json", help="Print JSON with everything there is.")] = False,
    catalog: Annotated[
        str | None,
        typer.Option(help="A catalog's name, or its properties: type=hadoop,warehouse=DIR."),
    ] = None,
    ref: Annotated[
        str | None, typer.Option(help="Files, manifests and partitions of this branch or tag.")
    ] = None,
    snapshot_id: Annotated[int | None, typer.Option(help="... of this snapshot instead.")] = None,
) -> None:
    """Show a table's metadata."""
    raise typer.Exit(
        _command("inspect")(table, what, as_json=json, catalog=catalog, ref=ref, snapshot_id=snapshot_id)
    )


@app.command()
def failpoints(
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """List the places where STREAMLAKE_FAILPOINTS can make a process fail, for tests of what comes after."""
    raise typer.Exit(_command("failpoints")(as_json=json))


class _NoVerdict(Exception):
    """The error that kept a command from judging.

    Its exit code is 2, because 1 is for what such a command finds.
    """

    exit_code = WRONG_USAGE

    def format_message(self) -> str:
        return describe(self.__cause__ or self)


def _judged(verdict: Callable[[], int]) -> int:
    """The exit code of a command that judges. Raises _NoVerdict for any other error."""
    try:
        return verdict()
    except (BrokenPipeError, typer.Exit, typer.Abort):
        raise
    except Exception as error:
        raise _NoVerdict from error


@app.command()
def doctor(
    table: Annotated[str, typer.Argument(metavar="TABLE", help="A table's directory, or a catalog's name.")],
    checkpoint: Annotated[
        str | None,
        typer.Argument(metavar="[CHECKPOINT]", help="The checkpoint directory of a stream into the table."),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object, with every orphan.")] = False,
    catalog: Annotated[
        str | None, typer.Option(help="A catalog's name, or its properties: type=hadoop,warehouse=DIR.")
    ] = None,
    orphan_age: Annotated[
        float, typer.Option(metavar="HOURS", min=0, help="Files that are younger may be work in progress.")
    ] = 24,
    quick: Annotated[bool, typer.Option("--quick", help="Do not read the content of delete files.")] = False,
) -> None:
    """Check all that must hold of a table, its index, its staged checkpoints and a checkpoint directory."""
    command = _command("doctor")
    raise typer.Exit(
        _judged(
            lambda: command(
                table, checkpoint, as_json=json, catalog=catalog, orphan_age_hours=orphan_age, quick=quick
            )
        )
    )


app.command("maintain")(maintain)


@app.command()
def recover(
    table: Annotated[str, typer.Argument(metavar="TABLE", help="A table's directory, or a catalog's name.")],
    checkpoint_location: Annotated[
        str, typer.Option(metavar="DIR", help="The stream's checkpoint directory.")
    ],
    pipeline: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="The stream's name (default: that of a stream without one)."),
    ] = None,
    branch: Annotated[str, typer.Option(metavar="NAME", help="The branch that it writes.")] = "main",
    catalog: Annotated[
        str | None,
        typer.Option(help="A catalog's name, or its properties: type=hadoop,warehouse=DIR."),
    ] = None,
    adopt: Annotated[
        bool, typer.Option("--adopt", help="Keep the table; the directory is the pipeline's continuation.")
    ] = False,
    fork: Annotated[
        bool,
        typer.Option(
            "--fork", help="Continue as a pipeline of its own, beside the one that wrote the table."
        ),
    ] = False,
    rewind_to: Annotated[
        int | None,
        typer.Option(
            metavar="CHECKPOINT", help="Put directory and table back to this checkpoint (-1: none)."
        ),
    ] = None,
    rollback_table: Annotated[
        bool, typer.Option("--rollback-table", help="Put the branch where the directory is.")
    ] = False,
    remove_torn: Annotated[
        bool, typer.Option("--remove-torn", help="Delete entries of Spark's logs that are not whole.")
    ] = False,
    resume_from_table: Annotated[
        bool,
        typer.Option(
            "--resume-from-table", help="The directory is lost: make a new one where the table's commits end."
        ),
    ] = False,
    topics: Annotated[
        str | None,
        typer.Option(
            metavar="NAMES",
            help="With --resume-from-table, of many tables: their topics, with commas between.",
        ),
    ] = None,
    topic_pattern: Annotated[
        str | None,
        typer.Option(metavar="REGEX", help="The pattern whose groups TABLE has as placeholders."),
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Do it; without, only say what would be done.")] = False,
) -> None:
    """Say why a stream is refused, and take one of the ways out."""
    raise typer.Exit(
        _command("recover")(
            table,
            pipeline=pipeline,
            checkpoint_location=checkpoint_location,
            branch=branch,
            catalog=catalog,
            adopt=adopt,
            fork=fork,
            rewind_to=rewind_to,
            rollback_table=rollback_table,
            remove_torn=remove_torn,
            resume_from_table=resume_from_table,
            topics=topics,
            topic_pattern=topic_pattern,
            yes=yes,
        )
    )


@app.command()
def verify(
    table: Annotated[
        str | None, typer.Argument(metavar="[TABLE]", help="A table's directory, or a catalog's name.")
    ] = None,
    against: Annotated[
        str | None,
        typer.Option(
            metavar="SOURCE", help="kafka://SERVERS/TOPIC, Parquet files (path or glob), or another table."
        ),
    ] = None,
    pipeline: Annotated[
        str | None, typer.Option(metavar="FILE.yaml", help="Take table, source, key and mode from this file.")
    ] = None,
    postgres: Annotated[
        str | None,
        typer.Option(
            metavar="DSN",
            help="Compare with a table of this PostgreSQL database: a connection string or URI.",
        ),
    ] = None,
    postgres_table: Annotated[
        str | None,
        typer.Option(
            metavar="SCHEMA.NAME", help="The database's table (default: public, the table's own name)."
        ),
    ] = None,
    key: Annotated[
        str | None,
        typer.Option(
            metavar="A,B", help="Columns that identify rows (default: identifier fields; '' for none)."
        ),
    ] = None,
    mode: Annotated[
        str | None, typer.Option(help="append (default), or upsert or changelog: the source holds changes.")
    ] = None,
    sequence_by: Annotated[
        str | None, typer.Option(metavar="A,B", help="Columns that order the changes of a key.")
    ] = None,
    row_kind: Annotated[
        str | None, typer.Option(metavar="COLUMN", help="The source's column with the kind of a change.")
    ] = None,
    columns: Annotated[
        str | None, typer.Option(metavar="A,B", help="Compare these columns only (default: all).")
    ] = None,
    branch: Annotated[str | None, typer.Option(metavar="NAME", help="The branch to verify.")] = None,
    until: Annotated[
        str | None,
        typer.Option(help="A topic up to the offsets that are committed (default), or to the latest."),
    ] = None,
    schema: Annotated[str | None, typer.Option(metavar="DDL", help="Columns of the topic's records.")] = None,
    option: Annotated[
        list[str] | None, typer.Option(metavar="NAME=VALUE", help="An option of the topic, as in pipelines.")
    ] = None,
    catalog: Annotated[
        str | None, typer.Option(help="A catalog's name, or its properties: type=hadoop,warehouse=DIR.")
    ] = None,
    against_catalog: Annotated[str | None, typer.Option(help="The catalog of the other table.")] = None,
    examples: Annotated[int, typer.Option(metavar="N", min=0, help="Examples of each problem.")] = 5,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Compare a table with its source, key by key; exit code 1 when they are not equal."""
    command = _command("verify")
    raise typer.Exit(
        _judged(
            lambda: command(
                table,
                against=against,
                pipeline=pipeline,
                postgres=postgres,
                postgres_table=postgres_table,
                as_json=json,
                catalog=catalog,
                against_catalog=against_catalog,
                schema=schema,
                options=tuple(option or ()),
                key=_names(key),
                mode=mode,
                sequence_by=_names(sequence_by),
                row_kind=row_kind,
                columns=_names(columns),
                branch=branch,
                until=until,
                examples=examples,
            )
        )
    )


@app.command()
def status(
    what: Annotated[
        str,
        typer.Argument(metavar="PIPELINE.yaml|TABLE", help="A pipeline file, or a table that one writes."),
    ],
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
    watch: Annotated[bool, typer.Option("--watch", help="Show it again and again, until Ctrl-C.")] = False,
    interval: Annotated[float, typer.Option(metavar="SECONDS", min=0.1, help="... as often as this.")] = 2.0,
    bootstrap_servers: Annotated[
        str | None, typer.Option(metavar="HOST:PORT", help="Of a table: the brokers that its topics are on.")
    ] = None,
    topic: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="Of a table: its topics (default: those of its last snapshot)."),
    ] = None,
    option: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=VALUE", help="Of a table: an option of its topics, as in pipelines."),
    ] = None,
    catalog: Annotated[
        str | None, typer.Option(help="A catalog's name, or its properties: type=hadoop,warehouse=DIR.")
    ] = None,
    branch: Annotated[str, typer.Option(metavar="NAME", help="The branch that is written.")] = "main",
    pipeline: Annotated[
        str | None, typer.Option(metavar="NAME", help="Of several streams into the table, this one.")
    ] = None,
) -> None:
    """Show how far a pipeline is behind its topics, when it last committed, its speed and its rejects."""
    raise typer.Exit(
        _command("status")(
            what,
            as_json=json,
            watch=watch,
            interval=interval,
            bootstrap_servers=bootstrap_servers,
            topics=tuple(topic or ()),
            options=tuple(option or ()),
            catalog=catalog,
            branch=branch,
            pipeline=pipeline,
        )
    )


def _names(text: str | None) -> tuple[str, ...] | None:
    """The names in "a,b"; one empty name for an empty text."""
    return None if text is None else tuple(part.strip() for part in text.split(","))


@app.command("replay-rejects")
def replay_rejects(
    pipeline: Annotated[
        str, typer.Argument(metavar="PIPELINE.yaml", help="The pipeline file, as it is now.")
    ],
    table: Annotated[
        str | None, typer.Option(metavar="TABLE", help="Of a pipeline with many tables, this one.")
    ] = None,
    where: Annotated[
        str | None,
        typer.Option(metavar="FILTER", help='Only rejects for which this is true: "offset > 100".'),
    ] = None,
    limit: Annotated[int | None, typer.Option(metavar="N", min=1, help="The oldest N only.")] = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Write rejected records that can be decoded now into the table, once; exit code 1 when some fail."""
    raise typer.Exit(
        _command("replay_rejects")(pipeline, table=table, where=where, limit=limit, as_json=json)
    )


app.add_typer(index_app, name="index")
app.add_typer(rejects_app, name="rejects")
app.add_typer(table_app, name="table")
app.add_typer(namespace_app, name="namespace")
app.add_typer(branch_app, name="branch")
app.add_typer(tag_app, name="tag")


if __name__ == "__main__":
    main()
