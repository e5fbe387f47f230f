"""Which columns tell an older change of a key from a newer one, where nobody names them.

Debezium says where a change stands in its database's log, so its changes are ordered by that, unless they are told to come in
the order of the topic. Invariant: what a sink takes a replay of its rejects takes too, so that both use one key index.
"""

from __future__ import annotations

from collections.abc import Sequence

from streamlake.records import ROW_SEQUENCE
from streamlake.source.kafka_source import KafkaSource
from streamlake.write.upsert_target import POSITION, UPSERT

NONE = "none"
"""In place of columns: the order of arrival."""


def named_sequence(given: Sequence[str] | str | None) -> tuple[str, ...] | None:
    """The columns that `sequence_by` names, none where it says so; None: it is left to the source."""
    if given is None:
        return None
    names = (given,) if isinstance(given, str) else tuple(given)
    return () if names == (NONE,) else names


def sequence_columns(
    given: Sequence[str] | str | None, source: KafkaSource, mode: str, delete_mode: str
) -> tuple[str, ...]:
    """The columns of `sequence_by` for a table that is written from `source`.

    The default is for mode upsert with delete mode position: no other has an index that keeps places which the table lacks.
    Other envelopes than Debezium's have places too, but times for the most part, which go back where clocks do.
    """
    named = named_sequence(given)
    if named is not None:
        return named
    is_placed = source.format.startswith("debezium-") and (mode, delete_mode) == (UPSERT, POSITION)
    return (ROW_SEQUENCE,) if is_placed else ()
