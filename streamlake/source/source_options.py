"""Options of a KafkaSource, parsed once from kebab-case text, where they enter."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timezone
from typing import Any

from streamlake.errors import InvalidOptionError
from streamlake.options import ShownFields, unknown_option
from streamlake.records import MAX_RECORD_BYTES
from streamlake.source.client_options import PREFIX, client_options
from streamlake.source.offsets import Partition, flatten
from streamlake.source.table_patterns import parse_table_patterns

EARLIEST, LATEST = -2, -1
"""In explicit starting offsets: the first available offset, and the one after the last."""

IGNORE_NULLS, DELETE_NULLS, REJECT_NULLS = "ignore", "delete", "reject"
NULL_VALUES = (IGNORE_NULLS, DELETE_NULLS, REJECT_NULLS)
DECODE_PREFIXES = ("json.", "avro.", "schema-registry.", "debezium.", "record.")
_WHERE = "KafkaSource"
_NAMES = (
    "starting-offsets",
    "starting-timestamp",
    "max-offsets-per-trigger",
    "min-partitions",
    "fail-on-data-loss",
    "isolation-level",
    "fetch-timeout-ms",
    "partition-discovery-interval-ms",
    "include-prefix",
    "inference-sample-size",
    "watermark-column",
    "partial-update",
    "null-value",
    "source-tables",
)
_WITH_PREFIX = (
    "json.timestamp-format",
    "json.unknown-fields",
    "avro.schema",
    "schema-registry.url",
    "kafka.security.protocol",
    "kafka.sasl.mechanism",
)
"""Options of decoders and the client that are easily given without their prefix."""


@dataclass(frozen=True, repr=False)
class SourceOptions(ShownFields):
    """Parsed options of a KafkaSource.

    `starting_offsets` is "earliest", "latest", "timestamp" (then `starting_timestamp_ms` is given) or
    "explicit" (then `explicit_offsets` is: {(topic, partition): offset}, -1 for the latest and -2 for the
    earliest). `max_offsets_per_trigger` and `min_partitions` are None for no limit and one task per
    partition. `source_tables`: the tables whose changes are decoded, with wildcards; none: the one table that
    a topic has. `partial_update`: a field that a record does not have keeps its value in the table.
    `null_value`: what a record without a value is, one of NULL_VALUES. `max_record_bytes`: a larger record
    may be handed on cut, but still longer than this. `client` holds kafka-python keywords, `decode` the
    entries that the format's decoder reads.
    """

    starting_offsets: str = "earliest"
    starting_timestamp_ms: int | None = None
    explicit_offsets: Mapping[Partition, int] = field(default_factory=dict)
    max_offsets_per_trigger: int | None = None
    min_partitions: int | None = None
    fail_on_data_loss: bool = True
    isolation_level: str = "read_committed"
    fetch_timeout_ms: int = 120_000
    partition_discovery_interval_ms: int = 10_000
    include_prefix: str = ""
    inference_sample_size: int = 1_000
    watermark_column: str | None = None
    partial_update: bool = False
    source_tables: tuple[str, ...] = ()
    null_value: str = IGNORE_NULLS
    max_record_bytes: int = MAX_RECORD_BYTES
    client: Mapping[str, Any] = field(default_factory=dict)
    decode: Mapping[str, str] = field(default_factory=dict)


def parse_source_options(options: Mapping[str, str]) -> SourceOptions:
    """The parsed options.

    Raises InvalidOptionError for an unknown name (with the nearest known one) or an invalid value.
    """
    own = {
        key: value
        for key, value in options.items()
        if not key.lower().startswith(PREFIX) and not key.startswith(DECODE_PREFIXES)
    }
    for name in own:
        if name not in _NAMES:
            raise unknown_option(name, (*_NAMES, *_WITH_PREFIX), _WHERE)
    mode, timestamp_ms, explicit = _start(own)
    isolation = own.get("isolation-level", "read_committed").lower().replace("-", "_")
    if isolation not in ("read_committed", "read_uncommitted"):
        raise InvalidOptionError(
            f"isolation-level is '{isolation}'; it can be read_committed or read_uncommitted"
        )
    null_value = own.get("null-value", IGNORE_NULLS).strip().lower()
    if null_value not in NULL_VALUES:
        raise InvalidOptionError(f"null-value is '{own['null-value']}'; it can be {', '.join(NULL_VALUES)}")
    return SourceOptions(
        starting_offsets=mode,
        starting_timestamp_ms=timestamp_ms,
        explicit_offsets=explicit,
        max_offsets_per_trigger=_count(own, "max-offsets-per-trigger", None),
        min_partitions=_count(own, "min-partitions", None),
        fail_on_data_loss=_flag(own, "fail-on-data-loss", default=True),
        isolation_level=isolation,
        fetch_timeout_ms=_count(own, "fetch-timeout-ms", 120_000) or 0,
        partition_discovery_interval_ms=_count(own, "partition-discovery-interval-ms", 10_000, least=0) or 0,
        include_prefix=own.get("include-prefix", ""),
        inference_sample_size=_count(own, "inference-sample-size", 1_000) or 0,
        partial_update=_flag(own, "partial-update", default=False),
        source_tables=parse_table_patterns(own["source-tables"]) if "source-tables" in own else (),
        null_value=null_value,
        watermark_column=own.get("watermark-column") or None,
        max_record_bytes=_count(options, "record.max-bytes", MAX_RECORD_BYTES) or 0,
        client=client_options(options),
        decode={key: value for key, value in options.items() if key.startswith(DECODE_PREFIXES)},
    )


def _start(options: Mapping[str, str]) -> tuple[str, int | None, dict[Partition, int]]:
    given = options.get("starting-offsets")
    timestamp = options.get("starting-timestamp")
    if given is not None and given.lstrip().startswith("{"):
        mode, explicit = "explicit", _explicit(given)
    else:
        mode, explicit = (given or ("timestamp" if timestamp else "earliest")).lower(), {}
    if mode not in ("earliest", "latest", "timestamp", "explicit"):
        raise InvalidOptionError(
            f"starting-offsets is '{given}'; it can be earliest, latest, timestamp (with "
            f"starting-timestamp), or "
            'JSON like {"orders": {"0": 23, "1": -2}} (-2 earliest, -1 latest)'
        )
    if (mode == "timestamp") != (timestamp is not None):
        raise InvalidOptionError(
            "starting-timestamp belongs to starting-offsets=timestamp: give both, or neither "
            f"(starting-offsets={given!r}, starting-timestamp={timestamp!r})"
        )
    return mode, None if timestamp is None else _timestamp_ms(timestamp), explicit


def _explicit(text: str) -> dict[Partition, int]:
    try:
        offsets = flatten(json.loads(text))
    except (ValueError, TypeError, AttributeError) as error:
        raise InvalidOptionError(
            f'starting-offsets is not JSON like {{"orders": {{"0": 23, "1": -2}}}}: {text[:200]} ({error})'
        ) from error
    wrong = {part: offset for part, offset in offsets.items() if offset < EARLIEST}
    if wrong:
        raise InvalidOptionError(
            f"starting-offsets holds offsets below -2: {wrong}; -2 is earliest, -1 is latest"
        )
    return offsets


def _timestamp_ms(text: str) -> int:
    if text.strip().isdigit():
        return int(text)
    try:
        moment = datetime.fromisoformat(text.strip().replace("Z", "+00:00"))
    except ValueError as error:
        raise InvalidOptionError(
            f"starting-timestamp is '{text}'; give milliseconds since 1970 or an ISO time like "
            "2024-05-01T00:00:00Z"
        ) from error
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=timezone.utc)
    return int(moment.timestamp() * 1000)


def _count(options: Mapping[str, str], name: str, default: int | None, *, least: int = 1) -> int | None:
    value = options.get(name)
    if value is None:
        return default
    if not value.strip().isdigit() or int(value) < least:
        raise InvalidOptionError(f"{name} is '{value}'; it must be a whole number of at least {least}")
    return int(value)


def _flag(options: Mapping[str, str], name: str, *, default: bool) -> bool:
    value = options.get(name, str(default)).strip().lower()
    if value not in ("true", "false"):
        raise InvalidOptionError(f"{name} is '{options[name]}'; it can be true or false")
    return value == "true"
