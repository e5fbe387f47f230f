"""Records that no reader may be harmed by: too deep, too wide, too large, or with values that no column holds.

Each is a reject of its own among good neighbours, or a DecodeError that names it.
"""

from __future__ import annotations

import json
import re
import time

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamlake.decode.json.json_values import parse_object
from streamlake.decode.values import record_limits
from streamlake.decode.values.new_fields import Watch
from streamlake.decode.values.record_limits import RecordLimits, current_limits
from streamlake.errors import DecodeError, InvalidOptionError, NewSchemaError
from streamlake.source.kafka_source import KafkaSource
from streamlake.tasks.direct_reader import row_decoder
from tests.unit.decode.raw_records import raw_batch

TABLE = "id long not null, d date, f float, g double"
ORIGIN = {"connector": "postgresql", "db": "d", "schema": "s", "table": "t", "lsn": 1}
GOOD = '{"id":7,"d":"2024-05-01"}'


def in_json(row):
    return row


def in_debezium(row):
    return f'{{"after":{row},"op":"c","source":{json.dumps(ORIGIN)}}}'


def in_unwrapped(row):
    return row[:-1] + ',"__op":"c","__lsn":1,"__source_ts_ms":1}'


def in_canal(row):
    row = re.sub(r'"id":(\d)', r'"id":"\1"', row)
    return f'{{"data":[{row}],"type":"INSERT","isDdl":false,"es":1,"table":"t","database":"d"}}'


def in_maxwell(row):
    return f'{{"database":"d","table":"t","type":"insert","ts":1,"position":"b.1:4","data":{row}}}'


FORMATS = {
    "json": in_json,
    "debezium-json": in_debezium,
    "debezium-unwrapped-json": in_unwrapped,
    "canal-json": in_canal,
    "maxwell-json": in_maxwell,
}


def opened(format="json", watch=None, **options):
    settings = {name.replace("__", ".").replace("_", "-"): value for name, value in options.items()}
    source = KafkaSource("localhost:1", "t", schema=TABLE, format=format, options=settings)
    return row_decoder(source, ["id"] if format != "json" else (), watch)


def check_refused(format, bad, reason, count, watch=None, **options):
    """The bad row is a reject, its neighbours are rows; and without rejects an error names its place."""
    write = FORMATS[format]
    records = [write(GOOD)] * count + [write(bad)] + [write(GOOD)] * count
    batch = raw_batch([{"value": record} for record in records])
    decoder = opened(format, watch, **options)
    decoded = decoder.decode(batch, keep_rejects=True)
    assert [reject.record for reject in decoded.rejects] == [count]
    assert reason in decoded.rejects[0].reason
    assert decoded.rows.num_rows == 2 * count
    with pytest.raises(DecodeError, match=rf"orders-3 offset {100 + count}\b.*{reason}"):
        decoder.decode(batch)


def nested(depth, kind):
    return "[" * depth + "1" + "]" * depth if kind == "array" else '{"a":' * depth + "1" + "}" * depth


@pytest.mark.parametrize("count", [0, 3, 100])
@pytest.mark.parametrize("kind", ["array", "object"])
@pytest.mark.parametrize("depth", [130, 900, 30_000])
@pytest.mark.parametrize("format", FORMATS)
def test_nested_too_deeply(format, depth, kind, count):
    bad = f'{{"id":1,"x":{nested(depth, kind)}}}'
    for watch in (Watch(), None):
        check_refused(format, bad, "it is nested too deeply: record.max-depth is 128", count, watch)


@pytest.mark.parametrize("columns", ["id long not null", "id long not null, l array<int>"])
@pytest.mark.parametrize("bad", ['{"id":1,"x":[[{"y":"]]"}]]}', '{"id":1,"x":1,"y":2,"z":3,"l":null}'])
def test_the_verdict_is_the_same_whatever_the_neighbours_are(bad, columns):
    """In blocks of one template, of several, and of records that only the exact way reads."""
    options = {"record.max-depth": "3", "record.max-fields": "4"}
    source = KafkaSource("localhost:1", "t", schema=columns, format="json", options=options)
    for others in (
        ['{"id":7}'],
        ['{"id":7,"x":[["]]",1]]}'],
        ['{"id":7}', '{"x":1,"id":7}'],
        ['{"id":7e0}'],
    ):
        for count in (0, 1, 5, 40, 200):
            records = [others[at % len(others)] for at in range(count)]
            batch = raw_batch([{"value": value} for value in (*records, bad, *records)])
            decoded = row_decoder(source).decode(batch, keep_rejects=True)
            refused = {reject.record: reject.reason for reject in decoded.rejects}
            assert "record.max-" in refused.pop(count)
            assert len(refused) == (2 * count if others == ['{"id":7e0}'] else 0)


@pytest.mark.parametrize("count", [0, 100])
@pytest.mark.parametrize(("depth", "refused"), [(125, False), (126, True)])
def test_what_is_around_a_payload_counts(depth, refused, count):
    """Whether the payload is cut out of its schema, or read with it."""
    fields = [{"field": "id", "type": "int64", "optional": False}, {"field": "l", "type": "string", "optional": True}]  # fmt: skip
    image = {"type": "struct", "fields": fields, "optional": True, "field": "after"}
    start = '{{"schema":{},"payload":'.format(json.dumps({"type": "struct", "fields": [image]}))
    good, deep = (
        f"{start}{in_debezium(row)}}}" for row in (GOOD, f'{{"id":1,"x":{nested(depth, "array")}}}')
    )
    batch = raw_batch([{"value": value} for value in (*[good] * count, deep, *[good] * count)])
    decoded = opened("debezium-json").decode(batch, keep_rejects=True)
    assert [reject.record for reject in decoded.rejects] == ([count] if refused else [])


@pytest.mark.parametrize("first", ["plain", "with a schema"])
def test_what_was_remembered_of_payloads_without_a_schema_allows_no_more_with_one(first):
    """Nor does what has a schema take anything from those without."""
    columns = "id long, v string"
    objects = '{"a":' * 123 + "1" + "}" * 123
    plain = in_debezium(f'{{"id":%d,"v":"a","x":{objects}}}')
    flat = in_debezium('{"id":%d,"v":"b","x":1}')
    kept = {"plain": plain, "with a schema": f'{{"schema":null,"payload":{flat}}}'}
    refused = f'{{"schema":null,"payload":{plain}}}'
    source = KafkaSource(
        "localhost:1", "t", schema=columns, format="debezium-json", options={"record.max-depth": "125"}
    )
    order = [kept.pop(first), *kept.values(), refused]
    decoder = row_decoder(source, ["id"])
    for place, text in enumerate([*order, *order]):
        batch = raw_batch([{"value": text % at} for at in range(300)])
        decoded = decoder.decode(batch, keep_rejects=True)
        if text is refused:
            assert (decoded.rows.num_rows, len(decoded.rejects)) == (0, 300), place
        else:
            assert decoded.rows.column("id").to_pylist() == list(range(300)), place
            assert set(decoded.rows.column("v").to_pylist()) == {"a" if text is plain else "b"}


@pytest.mark.parametrize("format", ["debezium-json", "canal-json", "maxwell-json"])
def test_of_tables_that_nobody_wants_records_may_be_as_deep_as_they_like(format):
    write = FORMATS[format]
    other = write(f'{{"id":1,"x":{nested(900, "array")}}}').replace('"t"', '"u"')
    for count in (0, 3, 100):
        batch = raw_batch([{"value": value} for value in (*[write(GOOD)] * count, other)])
        name = "d.s.t" if format == "debezium-json" else "d.t"
        decoded = opened(format, source_tables=name).decode(batch, keep_rejects=True)
        assert (decoded.rejects, decoded.rows.num_rows) == ((), count)


@settings(deadline=None, max_examples=100)
@given(st.lists(st.recursive(st.text('[]{}\\"x:', max_size=9), lambda each: st.lists(each, max_size=4) | st.dictionaries(st.text('[{"', max_size=2), each, max_size=4), max_leaves=40), min_size=1, max_size=20), st.integers(1, 6), st.integers(1, 5))  # fmt: skip
def test_the_suspect_is_the_first_that_is_beyond(objects, most_depth, most_fields):
    texts = [json.dumps({"a": each, "pad": "p" * 40}).encode() for each in objects]
    limits = RecordLimits(max_depth=most_depth, max_fields=most_fields)
    deep = [at for at, text in enumerate(texts) if record_limits._depth(text) > most_depth]
    found = limits.suspect(pa.array([b"", *texts], pa.binary()).slice(1))
    wide = [at for at, text in enumerate(texts) if text.count(b":") > most_fields]
    assert found == min([*deep, *wide], default=None)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(record_limits, "_PIECE", 2_048)
        assert limits.suspect(pa.array(texts * 50, pa.binary())) == found


def test_depth_is_that_of_brackets_outside_of_texts():
    deep = b'{"a":"' + b"]}" * 500 + b'","x":' + nested(128, "array").encode() + b"}"
    with pytest.raises(ValueError, match="nested too deeply"):
        parse_object(deep)
    flat = b'{"a":"\\"' + b"[{" * 500 + b'","x":[' + b",".join([b"{}"] * 500) + b"]}"
    assert len(parse_object(flat)["x"]) == 500
    assert RecordLimits().suspect(pa.array([flat, deep], pa.binary())) == 1
    for odd in (b'{"a":"' + b'\\"' * 100_000, b'{"' + b'a":"' * 100_000, b'"\\', b"[" * 300 + b'"\\'):
        begin = time.monotonic()
        with pytest.raises(ValueError, match=r"JSON|deeply"):
            parse_object(odd)
        assert time.monotonic() - begin < 5


@pytest.mark.parametrize("count", [0, 100])
@pytest.mark.parametrize("depth", [100, 198])
def test_as_deep_as_the_option_allows(depth, count):
    """A new column may be that deep."""
    records = [*[GOOD] * count, '{{"id":1,"x":{}}}'.format(nested(depth, "object"))]
    decoder = opened(watch=Watch(), record__max_depth="200")
    with pytest.raises(NewSchemaError):
        decoder.decode(raw_batch([{"value": record} for record in records]))


@pytest.mark.parametrize("count", [0, 100])
@pytest.mark.parametrize("watch", [None, Watch()])
@pytest.mark.parametrize("format", FORMATS)
def test_too_many_fields(format, watch, count):
    wide = '{{"id":1,"d":"2024-13-01",{}}}'.format(
        ",".join(f'"f{number}":{number}' for number in range(10_000))
    )
    check_refused(format, wide, "fields: record.max-fields is 10000", count, watch)


def test_many_fields_one_of_them_twice():
    wide = "{{{}}}".format(",".join(f'"f{number % 60_000}":1' for number in range(60_001)))
    begin = time.monotonic()
    with RecordLimits(max_fields=100_000).applied():
        assert parse_object(wide.encode()).twice == {"f0"}
    assert time.monotonic() - begin < 10
    assert current_limits() == RecordLimits()


@pytest.mark.parametrize("count", [0, 100])
@pytest.mark.parametrize("format", FORMATS)
def test_too_many_bytes(format, count):
    bad = '{"id":1,"d":"%s"}' % ("x" * 3_000)
    check_refused(format, bad, "it has more bytes than record.max-bytes allows, 2000", count, record__max_bytes="2000")  # fmt: skip


@pytest.mark.parametrize("count", [0, 100])
@pytest.mark.parametrize("format", FORMATS)
def test_too_many_bytes_of_a_key(format, count):
    """Of records without a value as well, where the key makes a change."""
    write = FORMATS[format]
    keys = [b'{"id":7}', b'{"id":7,"x":"%s"}' % (b"x" * 3_000)]
    good, bad = ({"key": key, "value": write(GOOD)} for key in keys)
    batch = raw_batch([*[good] * count, bad, *[good] * count])
    decoder = opened(format, record__max_bytes="2000")
    decoded = decoder.decode(batch, keep_rejects=True)
    assert [reject.record for reject in decoded.rejects] == [count]
    assert decoded.rejects[0].reason == "its key has more bytes than record.max-bytes allows, 2000"
    assert decoded.rows.num_rows == 2 * count
    with pytest.raises(DecodeError, match=rf"orders-3 offset {100 + count}: its key has more bytes"):
        decoder.decode(batch)
    if format != "json":
        decoded = decoder.decode(raw_batch([{"key": key} for key in keys]), keep_rejects=True)
        assert [reject.record for reject in decoded.rejects] == [1]
        assert decoded.tombstones == 1


def test_too_many_bytes_as_they_are():
    source = KafkaSource("localhost:1", "t", format="raw", options={"record.max-bytes": "5"})
    batch = raw_batch([{"value": value} for value in (b"12345", b"123456", None, b"")])
    decoded = row_decoder(source).decode(batch, keep_rejects=True)
    assert decoded.rows.column("value").to_pylist() == [b"12345", None, b""]
    assert [reject.record for reject in decoded.rejects] == [1]
    with pytest.raises(DecodeError, match=r"offset 101\b.*record.max-bytes"):
        row_decoder(source).decode(batch)
    large = raw_batch([{"key": b"12345"}, {"key": b"123456"}])
    assert [one.record for one in row_decoder(source).decode(large, keep_rejects=True).rejects] == [1]
    with pytest.raises(DecodeError, match=r"offset 101: its key has more bytes"):
        row_decoder(source).decode(large)


@pytest.mark.parametrize("count", [0, 3, 100])
@pytest.mark.parametrize("format", FORMATS)
def test_a_date_beyond_its_column(format, count):
    for text in ("+999999999-01-01", "-999999999-01-01", "+5881580-07-12", "-5877641-06-22"):
        if format == "canal-json" or format == "maxwell-json":
            reason = "'data"
        else:
            reason = "the date is outside of what the column can hold"
        check_refused(format, f'{{"id":1,"d":"{text}"}}', reason, count)


def test_the_last_dates_of_a_column():
    batch = raw_batch([{"value": {"id": 1, "d": text}} for text in ("+5881580-07-11", "-5877641-06-23")])
    assert opened().decode(batch).rows.column("d").cast(pa.int32()).to_pylist() == [2**31 - 1, -(2**31)]


@pytest.mark.parametrize("zero", ["-0", "-0.0", "-0e0", "-0.000"])
def test_minus_zero_is_the_same_in_bulk_and_alone(zero):
    row = f'{{"id":-0,"f":{zero},"g":{zero}}}'
    for format, write in FORMATS.items():
        if format in ("canal-json", "maxwell-json"):
            continue
        for records in ([row], [row] * 100, [row, '{"id":1,"g":1,"x":{"y":[]}}'] * 50):
            rows = opened(format).decode(raw_batch([{"value": write(one)} for one in records])).rows
            assert str(rows.column("f")[0].as_py()) == str(rows.column("g")[0].as_py()) == "-0.0"
            assert rows.column("id")[0].as_py() == 0


@pytest.mark.parametrize(
    ("name", "value"),
    [("max-depth", "0"), ("max-depth", "201"), ("max-bytes", "1k"), ("max-fields", "-1"), ("max-fields", "")],
)
def test_options_of_a_wrong_form(name, value):
    with pytest.raises(InvalidOptionError, match=f"record.{name} is '{value}'; it must be a whole number"):
        RecordLimits.of({f"record.{name}": value})
    with pytest.raises(InvalidOptionError, match=r"did you mean 'record.max-depth'"):
        opened(record__max_dept="3")
