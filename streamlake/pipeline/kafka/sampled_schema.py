"""The schema of a source that was given none: declared by its format, else inferred from a sample of records.

Place in the flow: on the driver; the sample is taken where reading begins.
"""

from __future__ import annotations

from streamlake.decode.cdc.change_inference import ChangedRows, infer_changed_rows
from streamlake.decode.cdc.source_tables import SourceTables
from streamlake.decode.json.json_inference import infer_schema
from streamlake.decode.value_formats import declared_schema
from streamlake.decode.values.record_limits import RecordLimits
from streamlake.errors import SourceError
from streamlake.source.cluster import Cluster, KafkaCluster
from streamlake.source.fetcher import fetch_range
from streamlake.source.kafka_source import KafkaSource
from streamlake.source.offsets import OffsetRange
from streamlake.source.planner import OffsetPlanner


def with_inferred_schema(source: KafkaSource) -> KafkaSource:
    """`source` itself when its schema is known, else with that of its Avro schema or of the schema registry,
    else with the schema of a sample (inference-sample-size records).

    The sample is taken from where a new checkpoint would start, and from before that where nothing follows.
    Raises SourceError when there is no record to sample or the registry does not answer, DecodeError when the
    records have no schema in common, InvalidOptionError and FeatureUnsupportedError when what is declared
    gives no columns.
    """
    if source.schema is not None:
        return source
    declared = declared_schema(source.format, lambda: _topics(source), source.settings.decode)
    if declared is not None:
        return source.with_schema(declared)
    if source.is_envelope:
        return source.with_schema(changed_rows(source).schema)
    with RecordLimits.of(source.settings.decode).applied():
        return source.with_schema(infer_schema(value for _, value in _sample(source)))


def changed_rows(source: KafkaSource) -> ChangedRows:
    """The key and schema of the rows in a sample of a change stream, all of one table. Raises SourceError
    when there is no record to sample, DecodeError when the records contain no row.
    """
    tables = SourceTables(source.settings.source_tables)
    with RecordLimits.of(source.settings.decode).applied():
        return infer_changed_rows(source.format, _sample(source), source.settings.decode, tables)


def _sample(source: KafkaSource) -> list[tuple[bytes | None, bytes]]:
    """(key, value) of records that have a value."""
    with KafkaCluster(source) as cluster:
        pieces = _sample_ranges(source, cluster)
    found: list[tuple[bytes | None, bytes]] = []
    for piece in pieces:
        for batch in fetch_range(source, piece, ("key", "value")):
            keys, values = batch.column("key").to_pylist(), batch.column("value").to_pylist()
            found += [(key, value) for key, value in zip(keys, values, strict=True) if value is not None]
    if not found:
        raise SourceError(
            f"{source}: no schema was given, and there is no record to infer one from; pass schema='id long, "
            "...' or create the table first"
        )
    return found


def _topics(source: KafkaSource) -> list[str]:
    if source.topics is not None:
        return list(source.topics)
    with KafkaCluster(source) as cluster:
        return sorted({topic for topic, _ in OffsetPlanner(source, cluster).initial().positions})


def _sample_ranges(source: KafkaSource, cluster: Cluster) -> list[OffsetRange]:
    positions = OffsetPlanner(source, cluster).initial().positions
    earliest, latest = cluster.earliest(positions), cluster.latest(positions)
    share = max(1, source.settings.inference_sample_size // max(1, len(positions)))
    pieces = []
    for (topic, partition), position in sorted(positions.items()):
        end = latest[topic, partition]
        start = max(earliest[topic, partition], min(position, end - share))
        pieces.append(OffsetRange(topic, partition, start, min(end, start + share)))
    return pieces
