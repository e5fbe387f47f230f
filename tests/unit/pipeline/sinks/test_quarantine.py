"""What a table in quarantine lacks."""

from __future__ import annotations

import pytest

from streamlake.errors import DataInvalidError, DecodeError
from streamlake.pipeline.sinks.quarantine import (
    missed_ranges,
    quarantine_from_text,
    quarantine_to_bytes,
    quarantined,
)
from streamlake.source.offsets import OffsetRange


def test_what_was_passed_over_is_read_from_where_it_began() -> None:
    begin = {("a", 0): 10, ("a", 1): 20, ("other", 0): 7}
    entry = quarantined(4, begin, ["a"], DecodeError("no"), 99)
    assert (entry.since, entry.error, entry.at_ms) == (4, "DecodeError: no", 99)
    assert entry.missed({("a", 0): 10, ("a", 1): 25, ("other", 0): 9}) == [OffsetRange("a", 1, 20, 25)]


def test_what_appears_meanwhile_is_known_too() -> None:
    entry = quarantined(4, {("a", 0): 10}, ["a"], DecodeError("no"), 99)
    later = {("a", 0): 30, ("a", 1): 2, ("b", 0): 5}
    known = entry.knowing(later, {("a", 1): 2, ("b", 0): 5}, ["a", "b"])
    assert known.missed({("a", 0): 40, ("a", 1): 9, ("b", 0): 6}) == [
        OffsetRange("a", 0, 10, 40),
        OffsetRange("a", 1, 2, 9),
        OffsetRange("b", 0, 5, 6),
    ]
    assert known.knowing({**later, ("a", 1): 9}, {}, ["a", "b"]) == known
    # A topic that was made anew begins at its own beginning.
    assert known.knowing(later, {("a", 0): 0}, ["a", "b"]).missed({("a", 0): 3}) == [
        OffsetRange("a", 0, 0, 3)
    ]


def test_what_several_tables_lack_of_a_partition_is_read_once() -> None:
    one = quarantined(1, {("a", 0): 10, ("a", 1): 5}, ["a"], DecodeError("no"), 0)
    two = quarantined(2, {("a", 0): 25, ("b", 0): 1}, ["a", "b"], DecodeError("no"), 0)
    assert missed_ranges([two, one], {("a", 0): 40, ("a", 1): 5, ("b", 0): 3}) == [
        OffsetRange("a", 0, 10, 25),
        OffsetRange("a", 0, 25, 40),
        OffsetRange("b", 0, 1, 3),
    ]


def test_entries_are_read_as_they_were_written() -> None:
    entries = {"t": quarantined(4, {("a", 0): 10}, ["a"], DecodeError("no"), 99)}
    assert quarantine_from_text(quarantine_to_bytes(entries).decode(), "q") == entries
    with pytest.raises(DataInvalidError, match="q, which says what tables in quarantine lack, is damaged"):
        quarantine_from_text('{"t": {"since": 1}}', "q")
