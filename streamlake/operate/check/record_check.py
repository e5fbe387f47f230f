"""Checks sampled records as tasks would take them: which would be rejected, which fields are dropped."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from streamlake.decode.json.json_values import parse_object
from streamlake.decode.values.decoded import Decoded, Decoder
from streamlake.decode.values.new_fields import Watch, unknown_part
from streamlake.operate.check.check_points import Points
from streamlake.records import record_place
from streamlake.source.kafka_source import KafkaSource
from streamlake.tasks.record_screen import RejectRules, RowScreen

RECORDS = "records"
_FIELDS_SHOWN = 8


@dataclass
class SampledRecords:
    """Counts what becomes of sampled records.

    `rules` are those of the table that they go into; None: only decoding is tried. `wrong` are the first
    records that cannot become rows, with the reasons.
    """

    rules: RejectRules | None = None
    read: int = 0
    wrong: list[str] = field(default_factory=list)

    def decode(self, decoder: Decoder, raw: pa.RecordBatch) -> Decoded:
        """Decode and screen a batch. Raises DecodeError for a batch that is wrong as a whole."""
        decoded = decoder.decode(raw, keep_rejects=True)
        if self.rules is not None:
            decoded = RowScreen(self.rules).fitting(decoded)
        self.read += raw.num_rows
        self.wrong += [f"{record_place(raw, each.record)}: {each.reason}" for each in decoded.rejects]
        return decoded

    def tell(self, points: Points, *, rejects: bool) -> None:
        """Add a point about the records that cannot become rows, if there are any."""
        count = len(self.wrong)
        if not count:
            return
        which = "the newest record" if self.read == 1 else f"{count} of the newest {self.read:,} records"
        if not rejects:
            points.error(RECORDS, f"{which} cannot be decoded, or written: {self.wrong[0]}")
        elif count == self.read and count > 1:
            points.error(RECORDS, f"all of the newest {count:,} records would be rejected: {self.wrong[0]}")
        else:
            points.warning(RECORDS, f"{which} would be rejected: {self.wrong[0]}")


def warn_of_dropped(source: KafkaSource, values: Iterable[bytes], points: Points) -> None:
    """Warn about fields of JSON records that have no column, so that their values are dropped."""
    if source.format != "json" or source.schema is None:
        return
    taken = Watch(taken=frozenset(source.metadata_columns))
    counts: Counter[str] = Counter()
    total = 0
    for value in values:
        total += 1
        try:
            counts.update(set(_paths(unknown_part(parse_object(value), source.schema.fields, taken))))
        except ValueError:
            continue  # it is reported as a record that cannot be decoded
    if not counts:
        return
    ranked = sorted(counts.items(), key=lambda each: (-each[1], each[0]))
    shown = [f"{name} (in {count:,})" for name, count in ranked[:_FIELDS_SHOWN]]
    more = f" and {len(counts) - _FIELDS_SHOWN} more" if len(counts) > _FIELDS_SHOWN else ""
    points.warning(
        RECORDS,
        f"fields of the newest {total:,} records have no column, and are dropped: {', '.join(shown)}{more}. "
        "Add columns for them to schema and table, or set sink.schema-evolution: add; the source option "
        "json.unknown-fields: fail makes them errors",
    )


def _paths(part: Mapping[str, Any], before: str = "") -> Iterable[str]:
    """The dotted names of the values in the unknown part of a record."""
    for name, value in part.items():
        yield from _inside(value, f"{before}{name}")


def _inside(value: Any, path: str) -> Sequence[str]:
    if isinstance(value, dict) and value:
        return list(_paths(value, f"{path}."))
    if isinstance(value, list) and any(isinstance(item, dict) for item in value):
        return [name for item in value if isinstance(item, dict) for name in _paths(item, f"{path}.")]
    return [path]
