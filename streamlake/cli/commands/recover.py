"""`streamlake recover`: shows why a stream was refused, and takes the way out that a person chooses.

It shows each step in advance, and carries them out with `--yes`, or when somebody at the terminal agrees.
Invariant: without either, nothing is changed.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

import typer

from streamlake.checkpoint.checkpoint_storage import checkpoint_io
from streamlake.checkpoint.spark_directory import SparkDirectory
from streamlake.checkpoint.table_note import NO_CHECKPOINT
from streamlake.cli.arguments import parse_catalog
from streamlake.cli.views.task_progress import step_progress
from streamlake.commit.findings import table_gone
from streamlake.commit.lineage import CatalogOption, Finding, RecoverCommand, Way
from streamlake.errors import InvalidOptionError, TableNotFoundError
from streamlake.operate.checkpoint_directory import existing_directory
from streamlake.operate.recover.recovery import Recovery, without_table
from streamlake.operate.recover.recovery_plan import Plan, Step
from streamlake.operate.recover.resuming import ResumedTable, resuming
from streamlake.operate.recover.resuming_tables import resuming_tables
from streamlake.pipeline.runs.rejected.rejects_table import open_rejects
from streamlake.pipeline.sinks.bound_tables import BoundTables, bind_tables
from streamlake.storage.file_io import FileIO
from streamlake.storage.locations import noted_table, table_location
from streamlake.tables import load_table
from streamlake.tasks.table_names import TableNames, is_template, row_placeholders

FOUND = 1


def run(
    location: str,
    *,
    pipeline: str | None,
    checkpoint_location: str,
    branch: str,
    catalog: str | None,
    adopt: bool,
    fork: bool,
    rewind_to: int | None,
    rollback_table: bool,
    remove_torn: bool,
    resume_from_table: bool,
    topics: str | None,
    topic_pattern: str | None,
    yes: bool,
) -> int:
    """Show the findings (exit code 1 when there are any), or take one way out.

    Raises InvalidOptionError, TableNotFoundError, ConflictValidationError when the table has changed
    meanwhile.
    """
    ways = {
        Way.ADOPT: adopt,
        Way.FORK: fork,
        Way.REWIND: rewind_to is not None,
        Way.ROLLBACK: rollback_table,
        Way.REMOVE_TORN: remove_torn,
        Way.RESUME: resume_from_table,
    }
    chosen = [way for way, given in ways.items() if given]
    if len(chosen) > 1:
        raise InvalidOptionError(f"{' and '.join(chosen)} are different ways out: choose one")
    options = parse_catalog(catalog)
    noted = table_location(location) if options is None else location
    if chosen == [Way.RESUME]:
        new = (table_location(checkpoint_location), checkpoint_io(checkpoint_location, options))
        if is_template(location):
            tables = _topic_tables(location, options, pipeline, branch, topics, topic_pattern)
            plan = resuming_tables(tables, BoundTables(location, branch), *new)
            return _carry_out(plan, Way.RESUME, yes=yes)
        return _resume(location, options, new, pipeline, branch, yes=yes)
    directory = existing_directory(checkpoint_location, options)
    if chosen == [Way.REMOVE_TORN]:
        return _remove_torn(directory, yes=yes)
    if is_template(location):
        return _of_many(directory, location, branch, chosen, yes=yes)
    try:
        table = load_table(location, catalog=options).table
    except TableNotFoundError:
        note = directory.note(noted, branch)
        if note is None:
            raise
        name = pipeline or f"{noted}:{directory.job_id}"
        command = RecoverCommand(noted, name, branch, options, directory.location)
        return _without_table(
            directory, table_gone(location, note.table_uuid), command, chosen, rewind_to, yes=yes
        )
    recovery = Recovery(table, branch, pipeline, directory, noted, open_rejects(location, options))
    recovery.require_known_pipeline()
    _say(
        f"{table.location}, branch {branch}, pipeline '{recovery.pipeline}'\n"
        f"{directory.location}, job {directory.job_id}: Spark has finished checkpoint "
        f"{directory.last_completed}"
    )
    command = RecoverCommand(noted, recovery.pipeline, branch, options, directory.location)
    _show(recovery.findings, command)
    if not chosen:
        return FOUND if recovery.findings else 0
    if not recovery.findings and chosen[0] is not Way.REWIND:
        _say(f"There is nothing that {chosen[0].value} can repair; nothing was done.")
        return 0
    plan = _plan(recovery, chosen[0], rewind_to)
    return _carry_out(plan, chosen[0], yes=yes)


def _resume(
    location: str,
    catalog: CatalogOption,
    new: tuple[str, FileIO],
    pipeline: str | None,
    branch: str,
    *,
    yes: bool,
) -> int:
    """Make a checkpoint directory anew, where it is lost."""
    table = load_table(location, catalog=catalog).table
    noted = noted_table(location, catalog)
    plan = resuming(table, branch, pipeline, *new, noted, open_rejects(location, catalog))
    _say(f"{table.location}, branch {branch}")
    return _carry_out(plan, Way.RESUME, yes=yes)


def _topic_tables(
    template: str,
    catalog: CatalogOption,
    pipeline: str | None,
    branch: str,
    topics: str | None,
    topic_pattern: str | None,
) -> dict[str, ResumedTable | None]:
    """The table of each topic of a query of many tables; None for one that does not exist yet."""
    if row_placeholders(template):
        raise InvalidOptionError(
            f"{template} stands for tables that rows name: they share topics, and each ends at offsets of "
            f"its own, so {Way.RESUME.value} cannot tell where the query ended. Start a new directory with "
            "starting-offsets at the smallest of them (`streamlake status` shows them), into tables of "
            "their own, or restore the directory from a copy"
        )
    if topics is None:
        raise InvalidOptionError(
            f"{template} stands for many tables: name their topics, --topics=orders,customers, and the "
            "--topic-pattern that the template's groups are of"
        )
    names = TableNames(template, topic_pattern)
    tables: dict[str, ResumedTable | None] = {}
    resumed: dict[str, ResumedTable | None] = {}
    for topic in sorted({each.strip() for each in topics.split(",")} - {""}):
        name = names.of(topic)
        if name not in resumed:
            resumed[name] = _resumed(name, catalog, pipeline, branch)
        tables[topic] = resumed[name]
    return tables


def _resumed(name: str, catalog: CatalogOption, pipeline: str | None, branch: str) -> ResumedTable | None:
    try:
        table = load_table(name, catalog=catalog).table
    except TableNotFoundError:
        return None
    return ResumedTable.of(table, branch, pipeline, noted_table(name, catalog), open_rejects(name, catalog))


def _of_many(
    directory: SparkDirectory, template: str, branch: str, chosen: Sequence[Way], *, yes: bool
) -> int:
    """Recover a query of many tables: the directory is bound to the template of their names."""
    before = BoundTables.of(directory)
    tables = BoundTables(template, branch, adopted=directory.last_completed)
    _say(f"{directory.location}, job {directory.job_id}, is bound to {before or 'no tables yet'}")
    if not chosen:
        return 0
    if chosen[0] is not Way.ADOPT:
        raise InvalidOptionError(
            f"{template} stands for many tables: only {Way.ADOPT.value} can be taken for all of them; name "
            "one for the others"
        )
    text = (
        f"note in {directory.location} that its query writes {tables} from checkpoint "
        f"{directory.last_completed + 1} on; records that were read before are left out of tables that have "
        "not been written by it"
    )
    return _carry_out(Plan((Step(text, lambda: bind_tables(directory, tables)),)), Way.ADOPT, yes=yes)


def _remove_torn(directory: SparkDirectory, *, yes: bool) -> int:
    """Remove torn entries, whatever the table holds: the next start compares it with what is left."""
    torn = directory.torn
    if not torn:
        _say(f"Every newest entry of Spark's logs in {directory.location} is whole; nothing was done.")
        return 0
    text = f"delete {', '.join(torn)} in {directory.location}, so that Spark runs these checkpoints again"
    return _carry_out(Plan((Step(text, directory.remove_torn),)), Way.REMOVE_TORN, yes=yes)


def _without_table(
    directory: SparkDirectory,
    gone: Finding,
    command: RecoverCommand,
    chosen: Sequence[Way],
    rewind_to: int | None,
    *,
    yes: bool,
) -> int:
    _show([gone], command)
    if not chosen:
        return FOUND
    if chosen[0] is not Way.REWIND or rewind_to != NO_CHECKPOINT:
        raise InvalidOptionError(
            f"there is no table at {command.table}: only {Way.REWIND.value}={NO_CHECKPOINT} can be taken "
            "without one"
        )
    rejects = open_rejects(command.table, command.catalog)
    return _carry_out(without_table(directory, command.pipeline, rejects), Way.REWIND, yes=yes)


def _show(findings: Sequence[Finding], command: RecoverCommand) -> None:
    if not findings:
        _say("Table and checkpoint directory agree.")
    for finding in findings:
        _say(f"\n{finding.found}.\nContinuing would {finding.consequence}.")
        for way in finding.ways:
            _say(f"  {command.text(way)}\n      {way.effect}")
        if finding.by_hand:
            _say(f"  or {finding.by_hand}")


def _plan(recovery: Recovery, way: Way, rewind_to: int | None) -> Plan:
    if way is Way.ADOPT:
        return recovery.adopt()
    if way is Way.FORK:
        return recovery.fork()
    if way is Way.ROLLBACK:
        return recovery.rollback()
    assert rewind_to is not None
    return recovery.rewind(rewind_to)


def _carry_out(plan: Plan, way: Way, *, yes: bool) -> int:
    _say(f"\n{way.value} will:")
    for number, step in enumerate(plan.steps, 1):
        _say(f"  {number}. {step.text}")
    for warning in plan.warnings:
        _say(f"  ! {warning}")
    if not yes and sys.stdin.isatty():
        yes = typer.confirm(
            "Every driver of this pipeline is stopped, and these steps are to be carried out?"
        )
    if not yes:
        _say("Nothing was done yet. Stop every driver of the pipeline, then run this again with --yes.")
        return 0
    with step_progress(f"recover {way.value}") as on_progress:
        plan.carry_out(on_progress)
    _say("Done. Start the stream again.")
    return 0


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
