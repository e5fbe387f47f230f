"""The comparison of a checkpoint directory with its table before a query starts, even without new data.

Place in the flow: `IcebergSink.start`, before Spark is asked for anything. The first micro-batch of a run
compares the two again, with what its driver knows then. Invariant: nothing is written, and nothing is removed
but what Spark cannot read after a power loss.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import Any, Protocol, cast

from pyspark.sql import SparkSession

from streamlake.catalog.open import open_table
from streamlake.checkpoint.spark_directory import SparkDirectory
from streamlake.checkpoint.spark_logs import local_home, remove_torn
from streamlake.checkpoint.table_note import Calls
from streamlake.commit.findings import another_pipelines, of_many, other_table, table_gone, torn_log
from streamlake.commit.lineage import CatalogOption, Finding, RecoverCommand, lineage_error
from streamlake.commit.marker import properties_of_job
from streamlake.commit.unnamed import is_unnamed
from streamlake.errors import InvalidOptionError, MissingFileError, StreamlakeError, TableNotFoundError
from streamlake.pipeline.direct.offset_log import OffsetForm, OffsetLog
from streamlake.pipeline.runs.lineage.lineage_check import lineage_findings
from streamlake.pipeline.sinks.bound_tables import BoundTables
from streamlake.pipeline.spark.checkpoint_file import HadoopFiles
from streamlake.storage.file_info import FileInfo
from streamlake.storage.file_io import FileIO, scheme_of
from streamlake.storage.locations import noted_table
from streamlake.table.table import Table

_LOG = logging.getLogger(__name__)


def remove_what_power_took(session: Any, checkpoint_location: str) -> None:
    """Remove the entries of Spark's logs that Spark cannot read after a power loss, with a warning."""
    path = session._jvm.org.apache.hadoop.fs.Path(checkpoint_location)
    conf = session._jsparkSession.sessionState().newHadoopConf()
    home = local_home(str(path.getFileSystem(conf).makeQualified(path).toString()))
    torn = [] if home is None else remove_torn(home)
    if torn:
        _LOG.warning(
            "%s: removed %s, empty, cut short or without its plan, as a loss of power leaves it; these "
            "checkpoints are run again, and what the table has of them is skipped",
            checkpoint_location,
            ", ".join(torn),
        )


class BoundSink(Protocol):
    """The part of a sink that is needed here; the properties are those of IcebergSink."""

    @property
    def table(self) -> str:
        """The table's location or name, as it was given."""
        ...

    @property
    def catalog(self) -> CatalogOption:
        """The catalog of the table; None for a Hadoop table."""
        ...

    @property
    def branch(self) -> str:
        """The branch that is written."""
        ...

    @property
    def pipeline(self) -> str | None:
        """The name of the stream; None where none was given."""
        ...

    @property
    def create(self) -> bool:
        """Whether a missing table is created."""
        ...


def pipeline_name(sink: BoundSink, job_id: str) -> str:
    """The pipeline's name; a stream without a name is called after its table and its query."""
    return sink.pipeline or f"{sink.table}:{job_id}"


def directory_at(
    session: SparkSession, location: str, form: OffsetForm[Any] | None = None
) -> SparkDirectory | None:
    """The checkpoint directory of a query that is to start, without the log entries that a power loss
    damaged; None when no query has been started there.

    Raises InvalidOptionError where no location is given, and LineageError where entries that stop Spark are
    not on a local disk. For a query that reads its source directly, with offsets of a `form`, raises
    SourceError when the directory belongs to a query of another kind, or lacks the offsets that it must have:
    without them nothing can be compared.
    """
    if not location or location == str(None):
        raise InvalidOptionError(
            "no checkpoint_location is given: without a checkpoint directory that stays, each start reads "
            "the source from its beginning and writes all rows again"
        )
    remove_what_power_took(session, location)
    jvm: Any = session._jvm
    path = jvm.org.apache.hadoop.fs.Path(location)
    files = HadoopFiles(session, path)
    full = str(files.system.makeQualified(path).toString())
    if scheme_of(full) in ("", "file"):
        directory = SparkDirectory.started(location)
    else:
        directory = SparkDirectory.started(full, cast(FileIO, _HadoopReads(files)))
    torn = [] if directory is None else directory.torn
    if torn:
        command = RecoverCommand("TABLE", "TABLE:", checkpoint_location=full)
        raise lineage_error(torn_log(full, torn), command)
    if form is not None:
        OffsetLog(session, location, form).last()
    return directory


def require_own_table(directory: SparkDirectory | None, sink: BoundSink, opened: Callable[[], Table]) -> None:
    """Raises LineageError where the directory and the sink's table disagree, and TableNotFoundError where
    there is no table and none may be created.
    """
    if directory is None or not directory.next_checkpoint:
        return
    found, command = own_findings(directory, sink, opened)
    if found:
        raise lineage_error(found[0], command)


def own_findings(
    directory: SparkDirectory, sink: BoundSink, opened: Callable[[], Table], calls: Calls = Calls.EVERY
) -> tuple[tuple[Finding, ...], RecoverCommand]:
    """Every disagreement between a directory and the table of a sink, and the `recover` command for them.

    Raises TableNotFoundError where there is no table and none may be created, and what `lineage_findings`
    raises.
    """
    named = noted_table(sink.table, sink.catalog)
    noted = directory.note(named, sink.branch)
    own = pipeline_name(sink, directory.job_id)
    own = own if noted is None else noted.pipelines.get(own, own)
    command = RecoverCommand(named, own, sink.branch, sink.catalog, directory.location)
    done = directory.next_checkpoint - 1
    many = BoundTables.of(directory) if calls is Calls.EVERY else None
    if many is not None and done >= 0:
        return (of_many(named, done, str(many)),), command
    try:
        table = opened()
    except TableNotFoundError:
        if done < 0:
            return (), command
        if noted is not None:
            return (table_gone(sink.table, noted.table_uuid),), command
        if calls is not Calls.EVERY:
            return (), command
        if not sink.create:
            raise
        foreign = _of_another(directory, sink, named, own)
        other = other_table(named, done, directory.other_tables(named, sink.branch))
        return (foreign or other,), command
    found = lineage_findings(table, sink.branch, own, directory, noted, named=named, calls=calls)
    if found and calls is Calls.EVERY:
        foreign = _of_another(directory, sink, named, own)
        found = found if foreign is None else (foreign,)
    return found, command


def _of_another(directory: SparkDirectory, sink: BoundSink, named: str, own: str) -> Finding | None:
    """The finding for a directory that other named pipelines have written their tables from, and this one
    nothing; None where that is not certain, as after a table of the same pipeline was renamed.
    """
    subjects = directory.noted_tables()
    if sink.pipeline is None or (named, sink.branch) in subjects:
        return None
    others = []
    for table, branch in subjects:
        try:
            recorded = properties_of_job(open_table(table, sink.catalog).metadata, directory.job_id)
        except StreamlakeError:
            return None
        names = {each.pipeline for each in recorded if each.branch == branch}
        noted = directory.note(table, branch)
        renamed = own if noted is None else noted.pipelines.get(own, own)
        if not names or renamed in names or any(is_unnamed(name, directory.job_id) for name in names):
            return None
        others += [(name, table) for name in sorted(names)]
    return another_pipelines(directory.location, named, own, others) if others else None


class _HadoopReads:
    """The reading part of a FileIO, through Spark's own file systems."""

    def __init__(self, files: HadoopFiles) -> None:
        self._files = files

    def read_bytes(self, path: str) -> bytes:
        text = self._files.read(self._files.path(path))
        if text is None:
            raise MissingFileError(f"{path} is not there")
        return text.encode()

    def list_prefix(self, path: str) -> Iterator[FileInfo]:
        for name in self._files.names(path):
            yield FileInfo(f"{path}/{name}", 0, 0)
