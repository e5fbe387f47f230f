"""Refused changes: those that writer tasks could not apply, written to the rejects table with their records.

A task that looks up old rows has a change's columns and its place in the topic, but no longer its record. So
the driver fetches these records, of which there are few, once all tasks are done.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from streamlake.decode.rejected_records import RejectStamp, rejected_rows
from streamlake.decode.values.envelope import Reject
from streamlake.errors import DecodeError, SchemaMismatchError
from streamlake.records import RAW_RECORDS
from streamlake.source.fetcher import fetch_range
from streamlake.source.kafka_source import KafkaSource
from streamlake.source.offsets import OffsetRange
from streamlake.write.files.result import Refused, WriteResult
from streamlake.write.target.target import WriteTarget
from streamlake.write.task_writer import TaskWriter

_DRIVER = 1 << 20
"""Stands in for a partition's number in the names of files that the driver writes."""
_NEAR = 1_000
"""Records whose offsets are no further apart than this are fetched together."""


def refused_changes(results: Sequence[WriteResult]) -> list[Refused]:
    """All changes that the tasks have refused, sorted by topic, partition and offset. Raises DecodeError for
    one whose record is not known.
    """
    refused = [each for result in results for each in result.refused]
    for each in refused:
        if each.topic is None:
            raise DecodeError(
                f"{each.reason}. Its record is not known, so that it cannot go to the rejects; set the table "
                "property streamlake.upsert.unset-values to fail or null"
            )
    return sorted(refused, key=lambda each: (each.topic, each.partition, each.offset))


def not_kept(refused: Sequence[Refused]) -> DecodeError:
    """The error for refused changes of a stream that keeps no rejects."""
    first = refused[0]
    return DecodeError(
        f"{first.topic}-{first.partition} offset {first.offset}: {first.reason}; {len(refused)} changes of "
        "this checkpoint are to be rejected, as the table property streamlake.upsert.unset-values says, and "
        "there are no rejects: set on_error='reject', or the property to fail or null"
    )


def write_refused(
    source: KafkaSource,
    refused: Sequence[Refused],
    target: WriteTarget,
    stamp: RejectStamp,
    topic_ids: Mapping[str, str] | None = None,
) -> WriteResult:
    """The files of the rejects table with the records of these changes; `topic_ids` are the ids of their
    topics. Raises SourceError and DataLossError, and DecodeError where records are no longer in Kafka.
    """
    writer = TaskWriter(target, _DRIVER, 0, 0)
    try:
        for piece, reasons in _pieces(refused, topic_ids or {}):
            for raw in fetch_range(source, piece, RAW_RECORDS.names):
                offsets = raw.column("offset").to_numpy()
                found = np.flatnonzero(np.isin(offsets, list(reasons))).tolist()
                rejects = [
                    Reject(at, reasons[int(offsets[at])], SchemaMismatchError.__name__) for at in found
                ]
                if rejects:
                    writer.write(rejected_rows(raw, rejects, stamp))
        result = writer.close()
    except BaseException:
        writer.abort()
        raise
    if result.rows != len({(each.topic, each.partition, each.offset) for each in refused}):
        raise DecodeError(
            f"{len(refused)} changes were refused, and {result.rows} of their records are still in Kafka; "
            f"the first is {refused[0].topic}-{refused[0].partition} offset {refused[0].offset}: "
            f"{refused[0].reason}"
        )
    return result


def _pieces(
    refused: Sequence[Refused], topic_ids: Mapping[str, str]
) -> Iterator[tuple[OffsetRange, dict[int, str]]]:
    """Ranges that hold the records, and the reason for each of their offsets."""
    by_partition: dict[tuple[str, int], dict[int, str]] = defaultdict(dict)
    for each in refused:
        assert each.topic is not None
        assert each.partition is not None
        assert each.offset is not None
        by_partition[each.topic, each.partition][each.offset] = each.reason
    for (topic, partition), reasons in by_partition.items():
        ordered = np.array(sorted(reasons))
        for part in np.split(ordered, np.flatnonzero(np.diff(ordered) > _NEAR) + 1):
            near = {int(offset): reasons[int(offset)] for offset in part}
            yield (
                OffsetRange(topic, partition, int(part[0]), int(part[-1]) + 1, topic_ids.get(topic, "")),
                near,
            )
