"""Checks that the logs of a Spark checkpoint directory are whole, and agree with the table.

It reads the files as they are, without Spark. Invariant: a directory in any state that a crash of the driver
can leave is healthy. So is one whose last checkpoint is in the table and not yet in Spark's commit log.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from streamlake import clock
from streamlake.catalog.open import CatalogOption
from streamlake.checkpoint.checkpoint_storage import checkpoint_io
from streamlake.checkpoint.offset_entries import DIRECTORY as OFFSET_ENTRIES
from streamlake.checkpoint.offset_entries import entry_from_text, entry_path
from streamlake.checkpoint.spark_directory import SparkDirectory
from streamlake.checkpoint.table_note import note_from_text
from streamlake.commit.lineage import Finding, RecoverCommand
from streamlake.commit.marker import JOB_ID, PIPELINE, PROPERTY_PREFIX
from streamlake.errors import DataInvalidError, InvalidOptionError, MissingFileError, StreamlakeError
from streamlake.maintain.reachable_files import is_temporary
from streamlake.operate.doctor.finding import Findings
from streamlake.pipeline.key_index.index_states import branches
from streamlake.pipeline.runs.lineage.lineage_check import lineage_findings
from streamlake.source.iceberg.table_offset import TableOffset
from streamlake.source.offsets import SourceOffsets
from streamlake.spec.metadata.snapshot import MAIN_BRANCH
from streamlake.storage.file_io import FileIO
from streamlake.storage.locations import table_location
from streamlake.table.table import Table

_VERSION = "v1"
_ANY_VERSION = re.compile(r"v\d+")
_NO_OFFSET = "-"
_RESTORE = "restore the file from a copy of the directory"


@dataclass
class _Directory:
    """What could be read of the directory.

    `is_torn`: the offset log cannot be compared with anything. `read`: how far checkpoints have read a table.
    """

    location: str
    job_id: str | None = None
    is_torn: bool = False
    planned: set[int] = field(default_factory=set)
    completed: set[int] = field(default_factory=set)
    notes: list[dict[str, Any]] = field(default_factory=list)
    read: dict[int, TableOffset] = field(default_factory=dict)


def check_checkpoint(
    table: Table, catalog: CatalogOption, location: str, findings: Findings, min_age_ms: int
) -> None:
    """Add what is wrong with the checkpoint directory of a stream into `table`.

    Temporary files count when they are older than `min_age_ms`. Raises InvalidOptionError when nothing is at
    `location`.
    """
    directory = _Directory(table_location(location))
    io = checkpoint_io(directory.location, catalog)
    listed = list(io.list_prefix(directory.location))
    if not listed:
        raise InvalidOptionError(f"{location}: there is no checkpoint directory; give the one of the stream")
    before = clock.now_ms() - min_age_ms
    for info in listed:
        if is_temporary(info.path) and info.modified_ms <= before:
            what = f"a temporary file of {info.size:,} bytes that a crash has left"
            findings.warning("checkpoint-temporary", info.path, what, f"delete {info.path}")
    _read(io, directory, {info.path for info in listed}, findings)
    _check_order(directory, findings)
    _check_offsets(directory, findings)
    if directory.job_id is not None and not directory.is_torn:
        _compare(table, catalog, io, directory, findings)


def _read(io: FileIO, directory: _Directory, paths: set[str], findings: Findings) -> None:
    root = directory.location
    if f"{root}/metadata" in paths:
        obj = _json(io, f"{root}/metadata", findings, "the query's id", _RESTORE)
        directory.job_id = str(obj["id"]) if isinstance(obj, dict) and "id" in obj else None
    else:
        what = "the file with the query's id is missing: Spark would take the directory for a new query's"
        findings.error("checkpoint-torn", f"{root}/metadata", what, _RESTORE)
    for path in sorted(paths):
        log, _, name = path[len(root) + 1 :].partition("/")
        if log == "streamlake" and path.endswith(".json"):
            fix = f"delete {path}; it is written again at the next start"
            note = _json(io, path, findings, "which table the directory writes", fix)
            directory.notes += [note] if isinstance(note, dict) else []
        if path.startswith(f"{root}/{OFFSET_ENTRIES}/") and path.rpartition("/")[2].isdigit():
            offset = _checked_entry(io, path, findings)
            if offset is not None:
                directory.read[int(path.rpartition("/")[2])] = offset
        if not name.isdigit():
            continue
        if log == "offsets":
            directory.planned.add(int(name))
            directory.is_torn |= not _is_whole_offset(io, path, findings)
        elif log == "commits":
            directory.completed.add(int(name))
            _check_commit(io, path, int(name), findings)


def _is_whole_offset(io: FileIO, path: str, findings: Findings) -> bool:
    lines = _lines(io, path)
    if _is_of_another_version(lines, path, findings):
        return False
    try:
        if len(lines) < 3 or lines[0].strip() != _VERSION:
            raise ValueError(f"{len(lines)} lines")
        for line in lines[1:]:
            if line != _NO_OFFSET:
                json.loads(line)
    except ValueError as error:
        findings.error(
            "checkpoint-torn",
            path,
            f"the entry of the offset log is damaged or cut short ({error}): Spark cannot start from it",
            f"{_RESTORE}; the newest entry may be deleted (`streamlake recover TABLE --checkpoint-location "
            "DIRECTORY --remove-torn`, and the start on a local disk does so by itself): Spark plans this "
            "checkpoint again, and what the table has of it is compared",
        )
        return False
    return True


def _is_of_another_version(lines: list[str], path: str, findings: Findings) -> bool:
    """Whether a log is of a version that is unknown here, which is added to the findings.

    Spark may read it, so it is not damaged, and nothing of it may be deleted.
    """
    found = lines[0].strip() if lines else ""
    if found == _VERSION or not _ANY_VERSION.fullmatch(found):
        return False
    findings.error(
        "checkpoint-version",
        path,
        f"this log of Spark is of version {found}, and {_VERSION} is the version that can be read here: the "
        "directory was not checked",
        "use the version of Spark that streamlake was tested with, which writes the known one; delete "
        "nothing",
    )
    return True


def _check_commit(io: FileIO, path: str, number: int, findings: Findings) -> None:
    lines = _lines(io, path)
    if _is_of_another_version(lines, path, findings):
        return
    try:
        if len(lines) < 2 or lines[0].strip() != _VERSION:
            raise ValueError(f"{len(lines)} lines")
        json.loads(lines[1])
    except ValueError as error:
        findings.error(
            "checkpoint-torn",
            path,
            f"the entry of the commit log is damaged or cut short ({error}): Spark cannot start from it",
            f"delete {path}: Spark runs checkpoint {number} again, and the table knows that it holds it",
        )


def _checked_entry(io: FileIO, path: str, findings: Findings) -> TableOffset | None:
    """The offset of a table in an entry; None for one of Kafka, or one that is wrong."""
    try:
        value = json.loads(entry_from_text("\n".join(_lines(io, path)), path))
        if isinstance(value, dict) and "offsets" in value:
            SourceOffsets.from_json(value)
            return None
        return TableOffset.from_json(value)
    except StreamlakeError as error:
        findings.error("checkpoint-torn", path, str(error), _RESTORE)
        return None


def _check_offsets(directory: _Directory, findings: Findings) -> None:
    """Check that the checkpoints of a stream over a table have read one table, forwards."""

    def wrong(number: int, what: str) -> None:
        path = f"{directory.location}/{entry_path(number)}"
        findings.error("checkpoint-offsets", path, what, f"{_RESTORE}; the stream would read other rows")

    first = directory.read.get(0)
    if first is not None and first.start is None and 0 not in directory.completed:
        wrong(0, "the first checkpoint's offset does not say where the stream begins")
    for (_, before), (number, offset) in pairwise(sorted(directory.read.items())):
        if offset.table_uuid != before.table_uuid:
            wrong(
                number,
                f"checkpoint {number} has read the table with uuid {offset.table_uuid}, and the one before "
                f"it that with {before.table_uuid}",
            )
        elif offset.order < before.order:
            wrong(number, f"checkpoint {number} ends before the one before it in the table that is read")


def _check_order(directory: _Directory, findings: Findings) -> None:
    planned, completed = max(directory.planned, default=-1), max(directory.completed, default=-1)
    if completed > planned:
        findings.error(
            "checkpoint-logs",
            f"{directory.location}/commits/{completed}",
            f"checkpoint {completed} is in the commit log, the offset log ends at {planned}",
            "restore the offset log from a copy of the directory",
        )
    if planned > completed + 1 and directory.completed:
        missing = ", ".join(str(number) for number in range(completed + 1, planned))
        findings.error(
            "checkpoint-logs",
            f"{directory.location}/commits",
            f"the offset log continues to checkpoint {planned}, checkpoints {missing} are not in the commit "
            "log",
            "restore the commit log from a copy of the directory",
        )
    for log, numbers in (("offsets", directory.planned), ("commits", directory.completed)):
        gaps = sorted(set(range(min(numbers, default=0), max(numbers, default=-1))) - numbers)
        if gaps:
            findings.warning(
                "checkpoint-logs",
                f"{directory.location}/{log}",
                f"checkpoints {', '.join(map(str, gaps[:5]))} are missing in between",
                "Spark looks at the newest entries only; keep them",
            )


def _compare(
    table: Table,
    catalog: CatalogOption,
    io: FileIO,
    directory: _Directory,
    findings: Findings,
) -> None:
    """Compare what the table records about this job with the directory."""
    named = table.location if catalog is None else table.name
    known = sorted(set(_pipelines(table, str(directory.job_id))))
    noted = {str(note.get("branch", MAIN_BRANCH)): note for note in directory.notes if _is_about(note, table)}
    spark = SparkDirectory(directory.location, io)
    pairs = known or [("NAME", branch) for branch in noted]
    for pipeline, branch in pairs:
        command = RecoverCommand(named, pipeline, branch, catalog, directory.location)
        note = note_from_text(json.dumps(noted[branch])) if branch in noted else None
        try:
            found = lineage_findings(table, branch, pipeline, spark, note, named=named)
        except DataInvalidError as error:
            fix = "set the property to its value in an earlier metadata file"
            findings.error("marker-damaged", table.location, str(error), fix)
            return
        for finding in found:
            _report(finding, directory.location, command, findings)
    if not pairs and directory.completed:
        findings.warning(
            "checkpoint-table",
            directory.location,
            f"job {directory.job_id} of this directory has never written this table",
            "give the directory of a stream into this table",
        )


def _report(finding: Finding, where: str, command: RecoverCommand, findings: Findings) -> None:
    findings.error(
        f"lineage-{finding.kind.value}",
        where,
        f"{finding.found}; continuing would {finding.consequence}",
        "stop every driver of the pipeline, then: " + "; or ".join(command.offers(finding)),
    )


def _pipelines(table: Table, job_id: str) -> Iterator[tuple[str, str]]:
    """Pipeline and branch of everything that this job has committed, by properties and snapshots."""
    for name, text in table.properties.items():
        if name.startswith(PROPERTY_PREFIX) and job_id in text:
            pipeline = name[len(PROPERTY_PREFIX) :]
            try:
                obj = json.loads(text)
                branch = str(obj.get("branch", MAIN_BRANCH))
            except (ValueError, AttributeError):
                branch = MAIN_BRANCH
            yield pipeline.removesuffix(f"@{branch}"), branch
    for branch in branches(table.metadata):
        head = table.metadata.head(branch)
        for snapshot in table.metadata.ancestors(None if head is None else head.snapshot_id):
            if snapshot.summary.get(JOB_ID) == job_id and PIPELINE in snapshot.summary:
                yield snapshot.summary[PIPELINE], branch
                break


def _is_about(note: dict[str, Any], table: Table) -> bool:
    return str(note.get("table", "")).rstrip("/") in (table.location.rstrip("/"), table.name)


def _json(io: FileIO, path: str, findings: Findings, holds: str, fix: str) -> Any:
    try:
        return json.loads(io.read_bytes(path))
    except MissingFileError:
        return None
    except ValueError as error:
        findings.error(
            "checkpoint-torn", path, f"does not say {holds} any more: it is damaged ({error})", fix
        )
        return None


def _lines(io: FileIO, path: str) -> list[str]:
    try:
        return io.read_bytes(path).decode("utf-8", "replace").rstrip("\n").split("\n")
    except MissingFileError:
        return []
