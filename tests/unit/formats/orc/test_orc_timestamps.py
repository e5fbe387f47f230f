"""Fractions of seconds before 1970 in ORC: what stands in the file is what the ORC specification wants."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import orc

from streamlake import load_table
from streamlake.catalog.open import create
from streamlake.errors import DataInvalidError
from streamlake.formats.orc.orc_container import (
    children,
    message_bytes,
    number,
    packed,
    parse_message,
    unpacked,
)
from streamlake.formats.orc.orc_timestamps import encoded_unsigned, has_odd_fractions, orc_timestamps
from streamlake.spec.types.ddl import parse_ddl
from tests.helpers.batch_write import append

MICROS = pa.timestamp("us")
# Whole seconds, both sides of a millisecond, and the last millisecond before 1970.
AWKWARD = [
    -1,
    -999,
    -1_000_000,
    -1_000_001,
    -1_000_999,
    -1_001_000,
    -1_500_000,
    -1_999_000,
    -1_999_001,
    -1_999_999,
    -999_001,
    -999_500,
    -2_000_500,
    -1_000_000_000_123_456,
    None,
    5,
    0,
]


def _nested(values: list[int | None]) -> pa.Table:
    moment = pa.timestamp("us", tz="UTC")
    entries = pa.map_(pa.string(), moment)
    return pa.table(
        {
            "id": pa.array(range(len(values)), pa.int64()),
            "a": pa.array(values, MICROS),
            "s": pa.array(
                [None if each is None else {"t": each} for each in values], pa.struct([("t", moment)])
            ),
            "l": pa.array(
                [None if each is None else [each, None, each] for each in values], pa.list_(MICROS)
            ),
            "m": pa.array([None if each is None else [("k", each)] for each in values], entries),
            "n": pa.array([None if each is None else each * 1000 + 7 for each in values], pa.timestamp("ns")),
        }
    )


@pytest.mark.parametrize("codec", ["zlib", "zstd", "snappy", "lz4", "none"])
def test_values_of_several_stripes_come_back(codec: str, tmp_path: Path) -> None:
    table = create(
        str(tmp_path / "t"),
        parse_ddl(
            "id long, a timestamp_ntz, s struct<t: timestamptz>, l array<timestamp_ntz>, m map<string, timestamptz>, "
            "n timestamp_ns"
        ),
        format_version=3,
        properties={
            "write.format.default": "orc",
            "write.orc.compression-codec": codec,
            "write.orc.stripe-size-bytes": "100000",
        },
    )
    made = np.random.default_rng(1).integers(-(10**15), 10**15, 20_000).tolist()
    rows = _nested([*AWKWARD, *made])
    append(table, rows)
    (path,) = (tmp_path / "t" / "data").glob("*.orc")
    assert orc.ORCFile(str(path)).nstripes > 1
    found = load_table(table.location).scan().to_arrow().sort_by("id")
    assert found.to_pylist() == rows.to_pylist()
    file = table.manifests(table.current_snapshot)[0]
    assert file.added_rows_count == len(rows)


def test_nanoseconds_in_the_file_are_never_negative(tmp_path: Path) -> None:
    """The stored parts, by the rules of the ORC specification, give the values: seconds below 0 lose one by a fraction."""
    values = [-1_000_001, -1_500_000, -1_999_500, -86_400_000_000_000 - 250_000, 7]
    table = create(
        str(tmp_path / "t"), parse_ddl("a timestamp_ntz"), properties={"write.format.default": "orc"}
    )
    append(table, pa.table({"a": pa.array(values, MICROS)}))
    (path,) = (tmp_path / "t" / "data").glob("*.orc")
    assert _read_by_specification(path.read_bytes(), len(values)) == values


def _read_by_specification(data: bytes, count: int) -> list[int]:
    """One column of short direct runs: seconds since 2015 from pyarrow's reader of longs, nanoseconds from the stream."""
    postscript = parse_message(data[-1 - data[-1] : -1])
    codec, end = number(postscript, 2), len(data) - 1 - data[-1]
    footer = parse_message(unpacked(data[end - number(postscript, 1) : end], codec))
    assert number(footer, 8) == 0
    (stripe,) = children(footer, 3)
    begin, index, length, foot = (number(stripe, field) for field in (1, 2, 3, 4))
    assert index == 0
    position, nanos = begin, b""
    for stream in children(parse_message(unpacked(data[begin + length :][:foot], codec)), 1):
        size = number(stream, 3)
        if number(stream, 1) == 5:
            nanos = unpacked(data[position : position + size], codec)
        position += size
    width = {7: 1, 15: 2, 23: 3, 27: 4, 28: 5, 31: 8}[nanos[0] >> 1 & 31]
    assert (nanos[0] >> 6, nanos[1] + 1, len(nanos)) == (1, count, 2 + width * count)
    stored = [int.from_bytes(nanos[2 + width * at :][:width], "big") for at in range(count)]
    fractions = [(each >> 3) * (10 ** ((each & 7) + 1) if each & 7 else 1) for each in stored]
    assert all(0 <= each < 10**9 for each in fractions)
    # pyarrow adds the parts up as they stand once it has taken off the second, so its answer holds the seconds.
    read = orc.ORCFile(pa.BufferReader(data)).read()["a"].cast(pa.int64()).to_pylist()
    return [each // 10**9 * 10**6 + fraction // 1000 for each, fraction in zip(read, fractions, strict=True)]


def test_what_no_orc_file_can_hold_is_refused(tmp_path: Path) -> None:
    for lost in (-1_000, -500_000, -999_000):
        with pytest.raises(DataInvalidError, match="last second before 1970"):
            orc_timestamps(pa.array([lost], MICROS))
    table = create(
        str(tmp_path / "t"), parse_ddl("a timestamp_ntz"), properties={"write.format.default": "orc"}
    )
    with pytest.raises(DataInvalidError, match="do not fit into one ORC file"):
        append(table, pa.table({"a": pa.array([-62_135_596_800_000_000, -1_500_000], MICROS)}))
    assert list((tmp_path / "t").glob("data/*.orc")) == []


def test_only_fractions_before_1970_are_odd() -> None:
    assert not has_odd_fractions(pa.array([None, -2_000_000, 0, 1], MICROS))
    assert has_odd_fractions(pa.array([None, -2_000_001], MICROS))
    kept = pa.array([None, -2_000_000, -1_500_000, 5], MICROS)
    assert orc_timestamps(kept).equals(kept)


def test_pyarrow_itself_writes_negative_nanoseconds(tmp_path: Path) -> None:
    """The reason for all of this: should pyarrow change, the exchange of streams can go."""
    path = tmp_path / "x.orc"
    orc.write_table(pa.table({"a": pa.array([-1_500_000], MICROS)}), str(path), compression="uncompressed")
    assert b"\xff\xff\xff\xff\xff\xff\xff" in path.read_bytes()


@pytest.mark.parametrize("codec", [0, 1])
def test_streams_and_messages_round_trip(codec: int) -> None:
    data = bytes(range(256)) * 40
    assert unpacked(packed(data, codec, 1000), codec) == data
    message = b"\x08\x96\x01\x12\x03abc\x19" + bytes(8) + b"\x25" + bytes(4)
    assert message_bytes(parse_message(message)) == message


def test_runs_are_cut_at_512() -> None:
    data = encoded_unsigned(np.arange(600, dtype=np.uint64))
    assert data[:2] == bytes([0b01_01111_1, 255])
    assert len(data) == 2 * 2 + 600 * 2
    assert encoded_unsigned(np.zeros(0, np.uint64)) == b""
