"""Checks one version of a table's metadata: ids, logs, references, sequence numbers, row ids.

It reads no other file. Invariant: what Iceberg's own writers leave after years of commits, expiry and
rollbacks passes.
"""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

from streamlake.operate.doctor.finding import Findings
from streamlake.spec.metadata.snapshot import MAIN_BRANCH
from streamlake.spec.metadata.table_metadata import TableMetadata

_CLOCK_SKEW_MS = 60_000
_RESTORE = "bring an earlier version of the metadata back (metadata-log names them), or roll the table back"


def check_metadata(metadata: TableMetadata, where: str, findings: Findings) -> None:
    """Add what is wrong in the metadata file `where`."""
    _check_current(metadata, where, findings)
    _check_snapshots(metadata, where, findings)
    _check_logs(metadata, where, findings)
    if metadata.format_version >= 3:
        _check_row_ids(metadata, where, findings)


def _check_current(metadata: TableMetadata, where: str, findings: Findings) -> None:
    if metadata.current_schema_id not in {schema.schema_id for schema in metadata.schemas}:
        what = f"the current schema, {metadata.current_schema_id}, is not among the schemas"
        findings.error("metadata-ids", where, what, _RESTORE)
    if metadata.default_spec_id not in metadata.specs_by_id:
        what = f"the default partition spec, {metadata.default_spec_id}, is not among the specs"
        findings.error("metadata-ids", where, what, _RESTORE)
    main = metadata.refs.get(MAIN_BRANCH)
    if metadata.current_snapshot_id != (None if main is None else main.snapshot_id):
        findings.error(
            "metadata-refs",
            where,
            f"the current snapshot is {metadata.current_snapshot_id}, the branch main is at "
            f"{None if main is None else main.snapshot_id}",
            "set the branch main to the snapshot that readers are to see, with any engine",
        )
    for name, ref in sorted(metadata.refs.items()):
        if metadata.snapshot(ref.snapshot_id) is None:
            findings.error(
                "metadata-refs",
                f"{ref.type} '{name}'",
                f"points to snapshot {ref.snapshot_id}, which the table does not have",
                f"drop the {ref.type}, or set it to a snapshot that there is",
            )


def _check_snapshots(metadata: TableMetadata, where: str, findings: Findings) -> None:
    ids = Counter(snapshot.snapshot_id for snapshot in metadata.snapshots)
    for snapshot_id, count in ids.items():
        if count > 1:
            findings.error("snapshot-ids", where, f"{count} snapshots have the id {snapshot_id}", _RESTORE)
    newest = max((snapshot.sequence_number for snapshot in metadata.snapshots), default=0)
    if metadata.last_sequence_number < newest:
        findings.error(
            "sequence-numbers",
            where,
            f"last-sequence-number is {metadata.last_sequence_number}, a snapshot has {newest}: the next "
            "commit's deletes would not apply",
            _RESTORE,
        )
    if metadata.format_version < 2:
        return
    for snapshot in metadata.snapshots:
        parent = metadata.snapshot(snapshot.parent_snapshot_id or -1)
        if parent is not None and parent.sequence_number >= snapshot.sequence_number:
            findings.error(
                "sequence-numbers",
                f"snapshot {snapshot.snapshot_id}",
                f"its sequence number, {snapshot.sequence_number}, is not above its parent's, "
                f"{parent.sequence_number}",
                _RESTORE,
            )


def _check_logs(metadata: TableMetadata, where: str, findings: Findings) -> None:
    log = metadata.snapshot_log
    fix = "any commit continues with the log as it is; time travel by timestamp may miss snapshots"
    for before, after in pairwise(log):
        if after.timestamp_ms < before.timestamp_ms - _CLOCK_SKEW_MS:
            what = (
                f"goes back from {before.timestamp_ms} to {after.timestamp_ms} ms at snapshot "
                f"{after.snapshot_id}"
            )
            findings.warning("snapshot-log", f"{where}: snapshot-log", what, fix)
    if log and metadata.current_snapshot_id is not None:
        last = log[-1].snapshot_id
        if last != metadata.current_snapshot_id:
            findings.error(
                "snapshot-log",
                f"{where}: snapshot-log",
                f"ends at snapshot {last}, the current one is {metadata.current_snapshot_id}",
                fix,
            )
    latest = max((entry.timestamp_ms for entry in log), default=0)
    if metadata.last_updated_ms < latest - _CLOCK_SKEW_MS:
        what = f"last-updated-ms is {metadata.last_updated_ms}, before the last entry of the snapshot log"
        findings.warning("snapshot-log", where, what, fix)
    files = Counter(entry.metadata_file for entry in metadata.metadata_log)
    for path, count in files.items():
        if count > 1:
            what = f"names {path} {count} times"
            findings.warning(
                "metadata-log",
                f"{where}: metadata-log",
                what,
                "nothing to do: it leaves with the log's oldest entries",
            )


def _check_row_ids(metadata: TableMetadata, where: str, findings: Findings) -> None:
    following = metadata.next_row_id or 0
    for snapshot in metadata.snapshots:
        if snapshot.first_row_id is None:
            continue
        end = snapshot.first_row_id + (snapshot.added_rows or 0)
        if end > following:
            findings.error(
                "row-lineage",
                f"snapshot {snapshot.snapshot_id}",
                f"took row ids up to {end}, next-row-id is {following}: new rows would get ids that others "
                "have",
                _RESTORE,
            )
