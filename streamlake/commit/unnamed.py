"""Protects against unnamed streams that would write the same rows again.

An unnamed pipeline is identified by its checkpoint directory alone, so a new directory is a new stream, which
reads its source from the beginning. The check runs once, at the first micro-batch of a new directory. It only
compares offsets that can be compared: those of Kafka, of one Iceberg table with one filter, and of one
directory of files. Invariant: streams
whose offsets cannot be compared never count as the same stream.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from streamlake.checkpoint.identity import CheckpointIdentity
from streamlake.commit.history import marker_of
from streamlake.commit.marker import PROPERTY_PREFIX, PipelineProperty, parsed_property
from streamlake.commit.offset_summary import (
    END_OFFSETS,
    committed_offsets,
    committed_table_offset,
    source_offsets,
    table_offset,
)
from streamlake.errors import DataInvalidError, LineageError
from streamlake.source.iceberg.table_offset import SnapshotPosition, TableOffset
from streamlake.source.offsets import Partition, flatten
from streamlake.spec.metadata.snapshot import Snapshot
from streamlake.spec.metadata.table_metadata import TableMetadata

FILES_READ = "streamlake.files-read"
"""In the snapshots of an unnamed pipeline: the directories of files that its query reads, as a JSON list."""
_COUNTER, _FILES = "logOffset", "files"
_SHOWN = 3


def require_unread(
    metadata: TableMetadata, branch: str, identity: CheckpointIdentity, files_read: Sequence[str]
) -> None:
    """Raise LineageError where another unnamed pipeline has committed what this one has read.

    It compares the first checkpoint of this one. `files_read` are the directories of files that the query
    reads.
    """
    for recorded in _unnamed(metadata, branch):
        if recorded.marker.job_id == identity.job_id:
            continue
        own = [each for each in metadata.snapshots if marker_of(each, recorded.marker.job_id) is not None]
        what = _read_twice(identity, files_read, own)
        if what is not None:
            raise LineageError(
                f"{metadata.location} holds rows of a stream without a name (job {recorded.marker.job_id}, "
                f"checkpoint {recorded.marker.checkpoint_id}) which has read {what} already. This stream "
                f"has no name either, and its checkpoint directory is new (job {identity.job_id}): it would "
                "write these rows again. Nothing was written. To continue that stream, start it with its own "
                "checkpoint directory. To write the rows again on purpose, or because these are two streams, "
                "give this one a name: pipeline='...' (`name:` in a pipeline file)"
            )


def has_unnamed(metadata: TableMetadata, branch: str) -> bool:
    """Whether an unnamed stream has committed to a branch."""
    return any(True for _ in _unnamed(metadata, branch))


def files_summary(files_read: Sequence[str]) -> dict[str, str]:
    """The summary entry of an unnamed pipeline's commit; empty where it reads no directory of files."""
    return {FILES_READ: json.dumps(list(files_read))} if files_read else {}


def is_unnamed(pipeline: str, job_id: str) -> bool:
    """Whether a pipeline has the generated name of an unnamed stream: its table and its job."""
    return pipeline.endswith(f":{job_id}")


def _unnamed(metadata: TableMetadata, branch: str) -> Iterator[PipelineProperty]:
    for name in metadata.properties:
        if not name.startswith(PROPERTY_PREFIX):
            continue
        recorded = None
        with contextlib.suppress(DataInvalidError):
            recorded = parsed_property(metadata, name)
        if recorded is None or recorded.branch != branch:
            continue
        if is_unnamed(name.removesuffix(f"@{branch}"), recorded.marker.job_id):
            yield recorded


def _read_twice(
    identity: CheckpointIdentity, files_read: Sequence[str], snapshots: Sequence[Snapshot]
) -> str | None:
    """A description of what both streams have read; None where that is nothing, or cannot be known."""
    if not snapshots:
        return None
    newest = max(snapshots, key=lambda each: each.sequence_number).summary
    ours = source_offsets(identity.end_offsets)
    theirs = committed_offsets(newest)
    if ours is not None and theirs is not None:
        return _shown(part for part, first in ours.first.items() if first < theirs.get(part, 0))
    our_table, their_table = table_offset(identity.end_offsets), committed_table_offset(newest)
    if our_table is not None and their_table is not None:
        return _snapshots_read_twice(our_table, their_table)
    their_texts = _texts(newest)
    if len(their_texts) != len(identity.end_offsets):
        return None
    for own, other in zip(identity.end_offsets, their_texts, strict=True):
        ends, reached = _kafka(own), _kafka(other)
        found = _shown(part for part, end in ends.items() if 0 < end <= reached.get(part, 0))
        if found is not None:
            return found
    both = [name for name in files_read if name in _listed(newest.get(FILES_READ))]
    if both:
        return f"files of {', '.join(both[:_SHOWN])}"
    same = any(_texts(each.summary) == list(identity.end_offsets) for each in snapshots)
    return "the same files" if same and any(_is_of_files(text) for text in identity.end_offsets) else None


def _snapshots_read_twice(ours: TableOffset, theirs: TableOffset) -> str | None:
    """What a new stream is about to read of a table that another one has read before."""
    start, reached = ours.start, theirs.position
    is_same = (ours.table_uuid, ours.planning.filter_digest) == (
        theirs.table_uuid,
        theirs.planning.filter_digest,
    )
    if not is_same or start is None or reached.snapshot_id is None:
        return None
    if start.is_scan or _is_before(start, reached, ours.position):
        return f"rows of the table with uuid {theirs.table_uuid} up to snapshot {reached.snapshot_id}"
    return None


def _is_before(start: SnapshotPosition, reached: SnapshotPosition, end: SnapshotPosition) -> bool:
    """Whether the way from `start` to `end` has snapshots that were read when `reached` was come to."""
    if start.snapshot_id == reached.snapshot_id:
        return reached.within is not None and start.within is not None
    if not reached.sequence_number:
        # Tables of format version 1 have no sequence numbers.
        return end.snapshot_id == reached.snapshot_id or start.snapshot_id is None
    return (start.sequence_number or 0) < reached.sequence_number


def _shown(parts: Iterator[Partition] | Any) -> str | None:
    names = [f"{topic}-{partition}" for topic, partition in sorted(parts)]
    if not names:
        return None
    more = len(names) - _SHOWN
    return f"records of {', '.join(names[:_SHOWN])}" + (f" and {more} more partitions" if more > 0 else "")


def _kafka(text: str) -> dict[Partition, int]:
    """The offsets of Spark's own Kafka source; empty for another source's text."""
    with contextlib.suppress(ValueError, TypeError, AttributeError):
        return flatten(json.loads(text))
    return {}


def _is_of_files(text: str) -> bool:
    return f'"{_COUNTER}"' in text and f'"{_FILES}"' in text


def _texts(summary: Mapping[str, str]) -> list[str]:
    return _listed(summary.get(END_OFFSETS))


def _listed(text: str | None) -> list[str]:
    with contextlib.suppress(ValueError, TypeError):
        return [str(each) for each in json.loads(text or "[]")]
    return []
