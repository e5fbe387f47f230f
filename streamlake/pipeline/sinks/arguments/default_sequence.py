"""The default of `sequence_by`: the columns that order the changes of a key where the user names none.

Debezium records each change's position in its database's log, so its changes are ordered by that position,
unless `sequence_by` says that they arrive in order. Invariant: a sink and a replay of its rejects use the
same columns, so that both use one key index.
"""

from __future__ import annotations

from collections.abc import Sequence

from streamlake.records import ROW_SEQUENCE
from streamlake.source.kafka_source import KafkaSource
from streamlake.write.upsert.upsert_target import POSITION, UPSERT

NONE = "none"
"""The value of `sequence_by` for the order of arrival, in place of columns."""


def named_sequence(given: Sequence[str] | str | None) -> tuple[str, ...] | None:
    """The columns that `sequence_by` names, none for "none"; None where the choice is left to the source."""
    if given is None:
        return None
    names = (given,) if isinstance(given, str) else tuple(given)
    return () if names == (NONE,) else names


def sequence_columns(
    given: Sequence[str] | str | None, source: KafkaSource, mode: str, delete_mode: str
) -> tuple[str, ...]:
    """The columns of `sequence_by` for a table that is written from `source`.

    The default applies to mode upsert with delete mode position: only its index keeps source positions that
    the table lacks. Envelopes other than Debezium's have positions too, but most of them are times, which go
    back where clocks do.
    """
    named = named_sequence(given)
    if named is not None:
        return named
    is_placed = source.format.startswith("debezium-") and (mode, delete_mode) == (UPSERT, POSITION)
    return (ROW_SEQUENCE,) if is_placed else ()
