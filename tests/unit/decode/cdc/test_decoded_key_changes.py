"""Updates and deletes of rows whose place, by key and by table, has nulls: in bulk and one by one they say the same."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamlake.decode.cdc import envelope_decoder
from streamlake.decode.cdc.envelopes import open_decoder
from streamlake.records import ROW_KIND, RowKind
from streamlake.spec.types.ddl import parse_ddl
from tests.unit.decode.raw_records import raw_batch

SCHEMA = parse_ddl("id long not null, c string, `a d` string, v string")
ROUTES = ["c"]
MARK = "__debezium_unavailable_value"
FORMATS = ("debezium-json", "debezium-unwrapped-json", "canal-json", "maxwell-json")


def changes(format, values, *, key=("id",), routes=ROUTES, partial_update=False, schema=SCHEMA):
    """What each record of a batch gives, (kind, row) each; a reason for a reject."""
    decoder = open_decoder(format, schema, key, {}, routes=routes, partial_update=partial_update)
    found = decoder.decode(raw_batch([{"value": value} for value in values]), keep_rejects=True)
    each = [[] for _ in values]
    for at, row in zip(found.records.tolist(), found.rows.to_pylist(), strict=True):
        each[at].append((RowKind(row.pop(ROW_KIND)), row))
    for one in found.rejects:
        each[one.record].append(one.reason)
    return each


def debezium(op, before, after, connector="postgresql"):
    return {"before": before, "after": after, "op": op, "source": {"connector": connector, "lsn": 1}}


def canal(before, after):
    data = before if after is None else after
    kind = "INSERT" if before is None else "DELETE" if after is None else "UPDATE"
    return {"data": [data], "old": [changed(before, after)], "type": kind, "isDdl": False, "es": 1}


def maxwell(before, after):
    data = before if after is None else after
    kind = "insert" if before is None else "delete" if after is None else "update"
    return {"data": data, "old": changed(before, after), "type": kind, "ts": 1}


def changed(before, after):
    if before is None or after is None:
        return None
    return {name: found for name, found in before.items() if name not in after or after[name] != found}


def record(format, before, after, connector="postgresql"):
    if format == "debezium-json":
        op = "c" if before is None else "d" if after is None else "u"
        return debezium(op, before, after, connector)
    if format == "debezium-unwrapped-json":
        return {**(before if after is None else after), "__deleted": str(after is None).lower(), "__lsn": 1}
    return (canal if format == "canal-json" else maxwell)(before, after)


@st.composite
def images(draw):
    """A row, its value of some columns null or not there at all."""
    text = st.sampled_from([None, "", "DE", "FR", MARK])
    row = {"id": str(draw(st.integers(0, 1))), "c": draw(text), "a d": draw(text), "v": draw(text)}
    for name in draw(st.sets(st.sampled_from(["c", "a d"]), max_size=1)):
        del row[name]
    return row


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("partial_update", [False, True])
@settings(max_examples=8, deadline=None)
@given(
    pairs=st.lists(
        st.tuples(st.none() | images(), st.none() | images()).filter(any), min_size=10, max_size=20
    )
)
def test_in_bulk_and_one_by_one(format, partial_update, pairs):
    values = [json.loads(json.dumps(record(format, *pair))) for pair in pairs]
    if format != "canal-json":
        for found in values:
            for image in (found, *map(found.get, ("before", "after", "data", "old"))):
                if isinstance(image, dict) and "id" in image:
                    image["id"] = int(image["id"])
    for key, routes in ((("id",), ["c", "a d"]), (("id", "c"), []), (("id", "a d"), ["c"])):
        more = {"key": key, "routes": routes, "partial_update": partial_update}
        alone = [changes(format, [value], **more)[0] for value in values]
        assert changes(format, values, **more) == alone


def row(c, id=1, v="x"):
    return {"id": id, "c": c, "a d": None, "v": v}


@pytest.mark.parametrize("copies", [1, envelope_decoder._ALONE + 1])
@pytest.mark.parametrize("format", [each for each in FORMATS if each != "debezium-unwrapped-json"])
@pytest.mark.parametrize(("key", "routes"), [(("id",), ["c"]), (("id", "c"), [])])
@pytest.mark.parametrize(
    ("before", "after", "moves"), [("DE", None, True), (None, "DE", True), (None, None, False)]
)
def test_null_is_a_place_like_any_other(format, copies, key, routes, before, after, moves):
    old, new = row(before), row(after, v="y")
    if format == "canal-json":
        old, new = ({**each, "id": "1"} for each in (old, new))
    expected = [(RowKind.DELETE, before)] * moves + [(RowKind.UPDATE_AFTER, after)]
    for found in changes(format, [record(format, old, new)] * copies, key=key, routes=routes):
        assert [(kind, row["c"]) for kind, row in found] == expected


@pytest.mark.parametrize("copies", [1, envelope_decoder._ALONE + 1])
@pytest.mark.parametrize("format", FORMATS)
def test_a_delete_may_have_null_for_what_names_its_table(format, copies):
    gone = {**row(None), "id": "1"} if format == "canal-json" else row(None)
    for [(kind, found)] in changes(format, [record(format, gone, None)] * copies):
        assert (kind, found["id"], found["c"]) == (RowKind.DELETE, 1, None)
    del gone["c"]
    for [reason] in changes(format, [record(format, gone, None)] * copies):
        assert "c' is required to find the row's table" in reason
    assert "'before.id' is required" in str(
        changes("debezium-json", [debezium("d", row("DE", id=None), None)])
    )


@pytest.mark.parametrize("empty", [None, "", "1970-01-01T00:00:00Z", "AA=="])
def test_a_delete_with_nothing_but_a_key_does_not_tell_the_table(empty):
    """PostgreSQL without REPLICA IDENTITY FULL: the null is none, and what cannot be null is filled with nothing."""
    [[reason]] = changes("debezium-json", [debezium("d", row(None, v=empty), None)])
    assert "'before.c' is required to find the row's table" in reason
    [[(kind, _)]] = changes("debezium-json", [debezium("d", row(None, v=empty), None, "mysql")])
    assert kind == RowKind.DELETE, "its rows are whole"


def test_a_value_that_was_left_out_has_not_changed():
    for copies in (1, 10):
        for found in changes("debezium-json", [debezium("u", row("DE"), row(MARK))] * copies):
            assert [kind for kind, _ in found] == [RowKind.UPDATE_AFTER]
        for [reason] in changes("debezium-json", [debezium("d", row(MARK), None)] * copies):
            assert "'before.c' is required to find the row's table, but it was left out" in reason


def test_a_document_without_the_field_is_one_with_null():
    def document(found):
        return json.dumps({"_id": 1, **found})

    schema = parse_ddl("_id long, c string")
    values = [
        debezium("u", document({}), document({"c": "DE"}), "mongodb"),
        debezium("d", document({}), None, "mongodb"),
    ]
    for copies in (1, 8):
        found = changes("debezium-json", values * copies, key=["_id"], schema=schema)
        kinds = [[(kind, row["c"]) for kind, row in each] for each in found]
        assert (
            kinds
            == [[(RowKind.DELETE, None), (RowKind.UPDATE_AFTER, "DE")], [(RowKind.DELETE, None)]] * copies
        )
