"""Records of one template: what is cut out of them is what the exact way reads, and a record that only looks alike is told apart."""

from __future__ import annotations

import contextlib
import json
from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamlake.decode.json import template_columns
from streamlake.decode.json.json_columns import JsonColumns
from streamlake.decode.json.json_decoder import JsonDecoder
from streamlake.decode.json.json_options import JsonOptions
from streamlake.decode.json.json_values import parse_object, row
from streamlake.decode.json.record_template import template_of
from streamlake.decode.json.template_columns import TemplateColumns
from streamlake.decode.values.text_columns import NotBulkError
from streamlake.formats.arrow.arrow_schema import schema_to_arrow
from streamlake.spec.types.ddl import parse_ddl

DDL = (
    "id bigint not null, i int, name string, amount decimal(12,3), d double, f float, ok boolean, at timestamptz, "
    "local timestamp_ntz, day date, t time, u uuid, data binary, s struct<x: int, n: struct<y: string not null>>, "
    "missing string"
)
SCHEMA = parse_ddl(DDL)
OPTIONS = JsonOptions()


@pytest.fixture(autouse=True)
def _small_blocks(monkeypatch):
    monkeypatch.setattr(template_columns, "LEAST", 1)


class Bad(Exception):
    pass


def decode(records, schema=SCHEMA, options=OPTIONS):
    """(index of the bad record, its reason), or the columns as text."""
    decoder = JsonDecoder(schema, options)
    try:
        columns = decoder.decode(pa.array(records, pa.binary()), lambda at, reason: Bad(at, reason))
    except Bad as error:
        return error.args
    for array, part in zip(columns, schema_to_arrow(schema), strict=True):
        array.validate(full=True)
        assert array.type.equals(part.type)
    return [plain(array) for array in columns]


def plain(array):
    if pa.types.is_temporal(array.type):
        array = array.cast(pa.int32() if array.type == pa.date32() else pa.int64())
    return repr(array.to_pylist())


def exact(records, schema=SCHEMA, options=OPTIONS):
    """As `decode`, by the word on what JSON means, record by record."""
    found = []
    for at, record in enumerate(records):
        try:
            found.append(row(parse_object(record), schema.fields, options))
        except ValueError as error:
            return (at, str(error))
    types = schema_to_arrow(schema)
    return [plain(pa.array([one[part.name] for one in found], part.type)) for part in types]


def record(at, /, **changed):
    value = {
        "id": at,
        "i": -at,
        "name": f"näme {at}",
        "amount": at / 8,
        "d": at / 7,
        "f": at / 4,
        "ok": at % 2 == 0,
        "at": f"2024-05-01T00:00:{at % 60:02d}.{at:06d}Z",
        "local": f"2024-05-01 00:00:{at % 60:02d}",
        "day": "2024-02-29",
        "t": "12:30:15.5",
        "u": f"f79c3e09-677c-4bbd-a479-3f349cb7{at % 10_000:04d}",
        "data": "YWJj",
        "s": {"x": at, "n": {"y": "in"}},
        "ignored": {"deep": at, "text": "x"},
        **changed,
    }
    return json.dumps(value, ensure_ascii=False).encode()


def by_template(records, schema=SCHEMA, options=OPTIONS, *, strict=False):
    reader = TemplateColumns(schema.fields, options, strict_names=strict)
    return reader.read(pa.array(records, pa.binary()))


def test_records_of_one_template():
    records = [record(at) for at in range(200)]
    rows, columns = by_template(records)
    assert rows is None
    assert [plain(array) for array in columns] == exact(records) == decode(records)


@pytest.mark.parametrize(
    "changed",
    [
        {"name": None},
        {"name": 'with "quotes"'},
        {"name": "back\\slash"},
        {"name": "\n"},
        {"name": ""},
        {"name": "longer than the others are by a good deal", "i": 2**31 - 1},
        {"amount": None, "d": None, "ok": None, "i": None, "f": None},
        {"amount": 1e3},
        {"amount": "1.5"},
        {"d": 1e300, "f": 1e-3},
        {"d": 10**30},
        {"s": None},
        {"s": {"x": 1, "n": None}},
        {"ignored": None},
        {"ignored": {"deep": 1e99, "text": "y"}},
        {"more": 1},
        {"at": "2024-05-01T02:00:00+02:00"},
        {"at": "2024-05-01T02:00:00"},
        {"data": "AP9="},
    ],
)
def test_other_values_and_other_templates_among_them(changed):
    records = [record(at, **(changed if at in (0, 77, 99) else {})) for at in range(100)]
    assert decode(records) == exact(records)


@pytest.mark.parametrize(
    ("changed", "problem"),
    [
        ({"i": 2**31}, "does not fit"),
        ({"i": 1.0}, "whole number"),
        ({"i": "1"}, "whole number"),
        ({"i": True}, "whole number"),
        ({"id": None}, "required"),
        ({"name": 5}, "text is needed"),
        ({"amount": 1.2345}, "more than 3 digits"),
        ({"ok": 1}, "true or false"),
        ({"ok": "true"}, "true or false"),
        ({"at": 1714521600}, "timestamp-format"),
        ({"at": "yesterday"}, "a timestamp looks like"),
        ({"s": {"x": 1, "n": {"y": None}}}, "required"),
        ({"s": 5}, "an object is needed"),
    ],
)
def test_misfits(changed, problem):
    for bad in ({42}, set(range(100))):
        records = [record(at, **(changed if at in bad else {})) for at in range(100)]
        at, reason = decode(records)
        assert at == min(bad)
        assert problem in reason
        assert (at, reason) == exact(records)


NUMBERS = [
    "0", "-0", "00", "01", "-01", "+1", "1.", ".5", "-.5", "1.5", "-1.50", "0.5", "00.5", "1e5", "1E+05", "1.e5", "1e",
    "0x10", "-0x1", "1_0", " 1", "1 ", "NaN", "Infinity", "-Infinity", "nan", "inf", "null", "nul", "nulll", "true",
    "tru", "truee", "false", "--1", "1-1", "1.2.3", "1e5e5", "9223372036854775808", "1e999", "-1e999", "123456789.123",
    "1234567890.123", "1.2340", "1.2345", "3.4028236e38", "[]", "{}", "", "1,", "1}",
]  # fmt: skip


@pytest.mark.parametrize(
    "type_", ["bigint", "int", "double", "float", "decimal(12,3)", "boolean", "timestamptz", "string"]
)
@pytest.mark.parametrize("options", [JsonOptions(), JsonOptions("epoch-millis")], ids=["iso", "epoch"])
def test_every_form_of_a_scalar(type_, options):
    schema = parse_ddl(f"a {type_}, b int")
    # As a whole number -0 has no sign for the exact way, and keeps it in bulk.
    numbers = [text for text in NUMBERS if text != "-0" or type_ not in ("double", "float")]
    for text in numbers:
        for good in ("1", "true", '"2024-05-01T00:00:00Z"'):
            records = [b'{"a": %s, "b": 7}' % (text if at == 2 else good).encode() for at in range(5)]
            assert decode(records, schema, options) == exact(records, schema, options), text
    only_b = parse_ddl("b int")
    for text in NUMBERS:
        records = [b'{"a": %s, "b": 7}' % (text if at == 2 else "1").encode() for at in range(5)]
        assert decode(records, only_b) == exact(records, only_b), text


@settings(deadline=None, max_examples=200)
@given(st.data())
def test_one_changed_byte_is_seen(data):
    records = [record(at, ignored=at) for at in range(8)]
    at = data.draw(st.integers(0, len(records) - 1))
    changed = bytearray(records[at])
    place = data.draw(st.integers(0, len(changed) - 1))
    what = data.draw(st.sampled_from(["change", "insert", "remove"]))
    letter = data.draw(st.one_of(st.sampled_from(list(b'"\\{}[]:,. 09-+eEntf\n\0')), st.integers(0, 255)))
    if what == "change":
        changed[place] = letter
    elif what == "insert":
        changed.insert(place, letter)
    else:
        del changed[place]
    records[at] = bytes(changed)
    assert decode(records) == exact(records)


@pytest.mark.parametrize(
    "letter", [b"\x0b", b"\x0c", b"\x1c", b"\xc2\x85", b"\xc2\xa0", b" ", b"\t", b"\n", b"\r"]
)
@pytest.mark.parametrize("at_end", [False, True])
def test_only_the_whitespace_of_json_may_surround_a_record(letter, at_end):
    records = [record(at, ignored=at) for at in range(8)]
    records[3] = records[3] + letter if at_end else letter + records[3]
    assert decode(records) == exact(records)
    assert isinstance(decode(records), tuple) is not (letter in b" \t\n\r")


TEXT = st.text(st.characters(codec="utf-8"), max_size=6)
VALUES = st.one_of(st.none(), st.booleans(), st.integers(-(2**33), 2**33), st.floats(-1e6, 1e6), TEXT)


@settings(deadline=None, max_examples=150)
@given(
    st.lists(
        st.fixed_dictionaries(
            {"a": VALUES, "b": TEXT, "c": st.integers(-5, 5)},
            optional={"d": st.decimals(-99, 99, places=2).map(float), "e": st.just({"x": 1})},
        ),
        min_size=1,
        max_size=12,
    ),
    st.sampled_from([(", ", ": "), (",", ":"), (" , ", " :  ")]),
    st.sampled_from(["int", "string", "double", "boolean", "decimal(9,2)"]),
)
def test_any_mixture_of_templates(objects, separators, type_):
    schema = parse_ddl(f"a {type_}, b string, c bigint, d decimal(9,2), e struct<x: int>")
    records = [json.dumps(one, separators=separators, ensure_ascii=False).encode() for one in objects]
    assert decode(records, schema) == exact(records, schema)


def test_the_template_is_kept_and_given_up():
    reader = TemplateColumns(SCHEMA.fields, JsonOptions(), strict_names=False)
    reader.read(pa.array([record(at) for at in range(10)], pa.binary()))
    mixed = [record(0, name="\x01"), *(record(at) for at in range(10))]
    rows, columns = reader.read(pa.array(mixed, pa.binary()))
    assert rows.tolist() == list(range(1, 11))
    assert columns[0].to_pylist() == list(range(10))
    lists = pa.array([b'{"id": 1, "list": [%d]}' % at for at in range(10)], pa.binary())
    for _ in range(5):
        with pytest.raises(NotBulkError):
            reader.read(lists)
    with pytest.raises(NotBulkError):
        reader.read(pa.array([record(at) for at in range(10)], pa.binary()))


def test_a_template_that_is_longer_than_a_whole_block():
    schema = parse_ddl("a int, b string")
    decoder = JsonColumns(schema.fields, OPTIONS, strict_names=False)
    long = b'{"a": 1, "' + b"n" * 5_000 + b'": "x"}'
    assert decoder.read(pa.array([long] * 3, pa.binary()))[0].to_pylist() == [1, 1, 1]
    assert decoder.read(pa.array([b'{"a": 1, "b": "x"}'] * 3, pa.binary()))[1].to_pylist() == ["x"] * 3


def test_records_of_several_templates_are_read_together():
    changes = [
        {},
        {"s": None},
        {"name": None},
        {"s": {"x": 1, "n": None}},
        {"u": None, "ignored": None},
        {"more": 1},
    ]
    records = [record(at, **changes[at % 4]) for at in range(200)]
    schema = parse_ddl(DDL.replace("y: string not null", "y: string"))
    rows, columns = by_template(records, schema)
    assert rows is None
    assert [plain(array) for array in columns] == exact(records, schema)
    for array, part in zip(columns, schema_to_arrow(schema), strict=True):
        array.validate(full=True)
        assert array.type.equals(part.type)
    more = [record(at, **changes[at % 6]) for at in range(200)]
    assert decode(more, schema) == exact(more, schema)


@pytest.mark.parametrize("bad", [(), (0,), (59, 60), (199,), range(20, 30), range(0, 200, 3)])
def test_a_block_is_read_in_pieces_and_what_has_no_template_beside_them(bad, monkeypatch):
    monkeypatch.setattr(template_columns, "_PIECE_BYTES", 4_000)
    monkeypatch.setattr(template_columns, "_PIECE_RECORDS", 5)
    records = [record(at, **({"name": "\x01"} if at in bad else {})) for at in range(200)]
    rows, columns = by_template(records)
    assert (list(range(200)) if rows is None else rows.tolist()) == [at for at in range(200) if at not in bad]
    assert [len(array) for array in columns] == [200 - len(bad)] * len(columns)
    assert decode(records) == exact(records)
    # A value that needs a closer look leaves its piece to the general reader.
    records[100] = record(100, f=1e999 if not bad else 1e300)
    assert decode(records) == exact(records)


def test_a_sign_without_digits_at_the_very_end():
    for type_ in ("int", "double", "decimal(9,2)", "string"):
        schema = parse_ddl(f"b int, a {type_}")
        for tail in (b"-", b"-}", b"--"):
            records = [b'{"b": 1, "a": 1}'] * 99 + [b'{"b": 1, "a": %s}' % tail]
            assert decode(records, schema) == exact(records, schema)
    unread = [b'{"b": 1, "z": 1}'] * 99 + [b'{"b": 1, "z": -}']
    assert decode(unread, parse_ddl("b int")) == exact(unread, parse_ddl("b int"))


def test_the_reader_of_the_rest_names_a_record_of_the_block():
    schema = parse_ddl("id long, l string")
    records = [b'{"id": %d}' % at for at in range(100)]
    records[50] = b'{"id": 50, "z": [1]}'
    records[70] = b'{"id": "x", "z": [1]}'
    decoder = JsonColumns(schema.fields, OPTIONS, strict_names=False)
    with pytest.raises(NotBulkError) as error:
        decoder.read(pa.array(records, pa.binary()))
    assert error.value.row == 70
    assert decode(records, schema) == exact(records, schema)


@pytest.mark.parametrize("number", [b"1" * 5_000, b"1e999999999999999999999999"], ids=["digits", "exponent"])
@pytest.mark.parametrize("type_", ["int", "double", "decimal(38,10)", "string"])
def test_numbers_that_no_column_holds(number, type_):
    schema = parse_ddl(f"b int, z {type_}")
    records = [b'{"b": 1, "z": 1}'] * 99 + [b'{"b": 1, "z": %s}' % number]
    if type_ == "string":
        records = [one.replace(b'"z": 1}', b'"z": "1"}') for one in records]
    at, _ = decode(records, schema)
    assert at == exact(records, schema)[0] == 99
    # Where nobody reads it, it is a number like others; alone, Python has to hold it.
    only_b = parse_ddl("b int")
    assert decode(records, only_b) in (exact(records, only_b), exact(records[:1] * 100, only_b))


def test_one_bad_value_does_not_give_templates_up(monkeypatch):
    asked = []
    parsed = JsonColumns._parsed
    monkeypatch.setattr(
        JsonColumns, "_parsed", lambda self, values: asked.append(len(values)) or parsed(self, values)
    )
    decoder = JsonDecoder(parse_ddl("id long, k int"), OPTIONS)
    good = [b'{"id": %d, "k": 1}' % at for at in range(200)]
    for bad in (b'{"id": 7, "k": 9999999999}', b'{"id": 7, "k":\n1}', b'{"id": 7, "k": 1, "z": [1]}', b"{}"):
        for _ in range(5):
            with contextlib.suppress(Bad):
                decoder.decode(
                    pa.array([*good[:20], bad, *good[20:]], pa.binary()), lambda at, reason: Bad(at, reason)
                )
    asked.clear()
    decoder.decode(pa.array(good, pa.binary()), lambda at, reason: Bad(at, reason))
    assert not asked


def test_templates_are_tried_again_after_a_rest():
    reader = TemplateColumns(parse_ddl("id long").fields, JsonOptions(), strict_names=False)
    lists = pa.array([b'{"id": 1, "list": [%d]}' % at for at in range(10)], pa.binary())
    good = pa.array([b'{"id": %d}' % at for at in range(10)], pa.binary())
    for _ in range(200):
        with pytest.raises(NotBulkError):
            reader.read(lists)
    for _ in range(64):
        with contextlib.suppress(NotBulkError):
            reader.read(good)
    assert reader.read(good)[0] is None


def test_records_without_a_template_do_not_hide_the_others():
    kinds = [{"tags": ["a"]}, {"a": "x"}, {"b": "x", "c": 1}, {"c": 1.5, "d": None}, {"e": {"f": "x"}}]
    records = [json.dumps({"id": at, **kinds[at % 5 if at % 10 else 0]}).encode() for at in range(500)]
    schema = parse_ddl("id long, a string, e struct<f: string>")
    rows, _ = by_template(records, schema)
    assert len(rows) == sum(b"tags" not in one for one in records)
    assert decode(records, schema) == exact(records, schema)


def test_templates_of_few_records_are_left_to_the_general_reader(monkeypatch):
    monkeypatch.setattr(template_columns, "LEAST", 64)
    names = [f"c{at}" for at in range(100)]
    records = [
        json.dumps({name: "x" if at >> bit % 8 & 1 else None for bit, name in enumerate(names)}).encode()
        for at in range(256)
    ]
    schema = parse_ddl(", ".join(f"{name} string" for name in names))
    with pytest.raises(NotBulkError):
        by_template(records, schema)


def test_new_templates_are_not_looked_for_without_end(monkeypatch):
    asked = []
    monkeypatch.setattr(template_columns, "template_of", lambda text: asked.append(text) or template_of(text))
    records = [b'{"id": %d, "n%d": 1}' % (at, at) for at in range(100)]
    schema = parse_ddl("id bigint")
    with pytest.raises(NotBulkError):
        by_template(records, schema)
    assert len(asked) == 8
    assert decode(records, schema) == exact(records, schema)


def test_a_field_that_is_text_here_and_a_number_there():
    schema = parse_ddl("a string, b int")
    records = [b'{"a": %s, "b": %d}' % (b'"x"' if at % 2 else b"null", at) for at in range(20)]
    assert by_template(records, schema)[0] is None
    assert decode(records, schema) == exact(records, schema)
    records[7] = b'{"a": 5, "b": 1}'
    assert decode(records, schema) == exact(records, schema) != (0, "")
    assert decode(records, schema)[0] == 7


ESCAPED = ['"', "\\", "/", "\b\f\n\r\t", '\\"', "\\\\", '"\\', "é\n", "a\\n", ""]


@pytest.mark.parametrize("text", ESCAPED)
def test_escapes_of_one_letter_are_read_by_template(text):
    records = [record(at, name=text * (at % 3)) for at in range(50)]
    rows, columns = by_template(records)
    assert rows is None
    assert [plain(array) for array in columns] == exact(records)


@pytest.mark.parametrize("text", ["\\u0041", "\\ud83d\\ude00", "\\x", "\\", "\\u00", "a\\", "\\\\\\"])
@pytest.mark.parametrize("where", ["name", "ignored"])
def test_other_escapes_are_left_to_the_general_reader(text, where):
    records = [record(at, name="x", ignored="x") for at in range(50)]
    for at in (0, 20, 49):
        records[at] = records[at].replace(
            b'"%s": "x"' % where.encode(), b'"%s": "%s"' % (where.encode(), text.encode())
        )
        rows, _ = by_template(records)
        assert at not in rows.tolist()
    assert decode(records) == exact(records)


@settings(deadline=None, max_examples=150)
@given(
    st.lists(
        st.lists(st.sampled_from(['"', "\\", "n", "{", "é"]), max_size=6).map("".join), min_size=1, max_size=8
    )
)
def test_any_text_with_escapes(texts):
    schema = parse_ddl("a string, b string, c int")
    records = [
        json.dumps({"a": text, "unread": text[::-1], "c": at, "b": text * 2}, ensure_ascii=False).encode()
        for at, text in enumerate(texts)
    ]
    assert by_template(records, schema)[0] is None
    assert decode(records, schema) == exact(records, schema)


def test_unknown_names_are_left_to_the_general_reader_where_they_are_errors():
    schema, strict = parse_ddl("a int, s struct<x: int>"), JsonOptions("iso", "fail")
    for text in (b'{"a": 1, "b": 2}', b'{"a": 1, "s": {"x": 1, "y": 2}}', b'{"a": 1, "b": {}}'):
        with pytest.raises(NotBulkError):
            by_template([text] * 3, schema, strict, strict=True)
        assert decode([text] * 3, schema, strict) == exact([text] * 3, schema, strict)
    assert by_template([b'{"a": 1, "s": {"x": 1}}'] * 3, schema, strict, strict=True)[0] is None


@pytest.mark.parametrize(
    "text",
    [
        b"[1]",
        b"5",
        b"",
        b'{"a": 1',
        b'{"a": [1]}',
        b'{"\\n": 1}',
        b'{"a": 1, "a": 2}',
        b"{}",
        b'{\n"a": 1}',
        b'{"a": NaN}',
    ],
)
def test_what_has_no_template(text):
    assert template_of(text) is None


def test_the_general_reader_is_not_asked_about_records_of_one_template(monkeypatch):
    def asked(*_):
        raise AssertionError("the general reader was asked")

    monkeypatch.setattr(JsonColumns, "_parsed", asked)
    records = [record(at, amount=float(Decimal(at) / 8)) for at in range(100)]
    assert decode(records) == exact(records)
