"""Events of Debezium's MongoDB connector as it writes them: Extended JSON of version 1, and of version 2."""

from __future__ import annotations

import base64
import json
import uuid

import pytest

from streamlake.decode.cdc.debezium.missing_documents import lacks_documents
from streamlake.decode.cdc.envelopes import open_decoder
from streamlake.errors import DecodeError, InvalidOptionError
from streamlake.records import RowKind
from streamlake.spec.types.ddl import parse_ddl
from tests.unit.decode.raw_records import raw_batch

ID = uuid.UUID("12345678-1234-5678-1234-567812345678")
TEXT = base64.b64encode(ID.bytes).decode()
COUNTS = pytest.mark.parametrize("count", [1, 100])
"""Events: one is read alone, many in bulk."""


def event(document, op="c", at=1, key=None, **more):
    after = None if document is None else json.dumps(document)
    source = {"connector": "mongodb", "ts_ms": 1_700_000_000_000, "ord": at}
    value = {"before": None, "after": after, "op": op, "source": source, **more}
    return {"key": {"id": key or str(at)}, "value": value}


def decoded(ddl, records, keep_rejects=False, options=None):
    decoder = open_decoder("debezium-json", parse_ddl(f"_id long not null, {ddl}"), ["_id"], options or {})
    return decoder.decode(raw_batch(records), keep_rejects=keep_rejects)


def read(column, values, count=1):
    """The values of `v` in documents that have one of `values` each."""
    documents = [{"_id": at, "v": values[at % len(values)]} for at in range(count)]
    found = decoded(f"v {column}", [event(one, at=at) for at, one in enumerate(documents)])
    return found.rows.column("v").to_pylist()


FORMS = [
    ("binary", {"$binary": "a2Fma2E=", "$type": "00"}, b"kafka"),
    ("binary", {"$binary": "a2Fma2E=", "$type": "80"}, b"kafka"),
    ("binary", {"$binary": "", "$type": "00"}, b""),
    ("binary", {"$binary": TEXT, "$type": "03"}, ID.bytes),
    ("binary", {"$binary": {"base64": "a2Fma2E=", "subType": "00"}}, b"kafka"),
    ("fixed(5)", {"$binary": "a2Fma2E=", "$type": "00"}, b"kafka"),
    ("fixed(5)", {"$binary": {"base64": "a2Fma2E=", "subType": "00"}}, b"kafka"),
    ("uuid", {"$binary": TEXT, "$type": "04"}, ID.bytes),
    ("uuid", {"$binary": TEXT, "$type": "4"}, ID.bytes),
    ("uuid", {"$binary": {"base64": TEXT, "subType": "04"}}, ID.bytes),
    ("uuid", {"$uuid": str(ID)}, ID.bytes),
    ("double", {"$numberLong": "5"}, 5.0),
    ("double", {"$numberLong": "-9007199254740992"}, -(2.0**53)),
    ("double", {"$numberLong": str(2**60)}, 2.0**60),
    ("double", {"$numberInt": "5"}, 5.0),
    ("float", {"$numberLong": "16777216"}, 2.0**24),
    ("long", {"$numberLong": "9223372036854775807"}, 2**63 - 1),
    ("struct<b: binary, l: array<double>>",
        {"b": {"$binary": "a2Fma2E=", "$type": "00"}, "l": [{"$numberLong": "5"}, 1.5]},
        {"b": b"kafka", "l": [5.0, 1.5]}),
]  # fmt: skip


@COUNTS
@pytest.mark.parametrize(("column", "value", "wanted"), FORMS)
def test_values_as_the_driver_writes_them(column, value, wanted, count):
    assert read(column, [value], count) == [wanted] * count
    assert read(column, [value, None], 2 * count) == [wanted, None] * count


@COUNTS
@pytest.mark.parametrize("column", ["binary", "uuid", "double"])
def test_forms_may_be_mixed(column, count):
    values = [(value, wanted) for kind, value, wanted in FORMS if kind == column]
    found = read(column, [value for value, _ in values], count * len(values))
    assert found == [wanted for _, wanted in values] * count


@COUNTS
@pytest.mark.parametrize(
    ("column", "value", "reason"),
    [
        ("uuid", {"$binary": TEXT, "$type": "03"}, "subtype '03' is not a UUID"),
        ("uuid", {"$binary": {"base64": TEXT, "subType": "03"}}, "subtype '03' is not a UUID"),
        ("uuid", {"$binary": TEXT}, "'\\$binary'|not a UUID"),
        ("uuid", {"$binary": "a2Fma2E=", "$type": "04"}, "it holds 5 bytes instead of 16"),
        ("fixed(4)", {"$binary": "a2Fma2E=", "$type": "00"}, "it holds 5 bytes instead of 4"),
        ("binary", {"$binary": None, "$type": "00"}, "bytes in base64"),
        ("binary", {"$binary": "a2Fma2E", "$type": "00"}, "base64 with padding"),
        ("binary", {"$binary": {"subType": "00"}}, "bytes in base64"),
        ("double", {"$numberLong": "9007199254740993"}, "more digits than double"),
        ("float", {"$numberLong": "16777217"}, "more digits than float"),
        ("double", {"$numberLong": "9223372036854775808"}, "64 bits"),
        ("double", {"$numberLong": 5}, "text is needed"),
    ],
)
def test_values_that_do_not_fit(column, value, reason, count):
    good = [event({"_id": at}, at=at) for at in range(count)]
    records = [*good, event({"_id": 7, "v": value}, at=count)]
    found = decoded(f"v {column}", records, keep_rejects=True)
    assert [reject.record for reject in found.rejects] == [count]
    assert found.rows.num_rows == count
    with pytest.raises(DecodeError, match=rf"offset {100 + count}\b.*({reason})"):
        decoded(f"v {column}", records)


@COUNTS
def test_an_update_whose_document_is_gone_changes_nothing(count):
    records = [event({"_id": 1, "v": 1})]
    records += [event(None, "u", at, "1", updateDescription={"updatedFields": "{}"}) for at in range(2, 2 + count)]  # fmt: skip
    records.append(event(None, "d", 2 + count, "1"))
    found = decoded("v long", records)
    assert found.rows.column("_id").to_pylist() == [1, 1]
    assert found.rows.column("_row_kind").to_pylist() == [RowKind.INSERT, RowKind.DELETE]
    assert found.ignored == {"update of a document that is gone": count}
    for mode in ("change_streams", "change_streams_with_pre_image"):
        options = {"debezium.capture-mode": mode}
        with pytest.raises(DecodeError, match=r"offset 101\b.*Set its capture.mode"):
            decoded("v long", records, options=options)
    full = {"debezium.capture-mode": "change_streams_update_full_with_pre_image"}
    assert decoded("v long", records, options=full).ignored == found.ignored
    with pytest.raises(InvalidOptionError, match=r"capture-mode is 'oplog'; it can be change_streams, "):
        decoded("v long", records, options={"debezium.capture-mode": "oplog"})


def test_other_connectors_have_rows_in_updates():
    value = {"before": None, "after": None, "op": "u", "source": {"connector": "postgresql", "lsn": 1}}
    with pytest.raises(DecodeError, match="'after' is needed"):
        decoded("v long", [{"value": value}])


@COUNTS
def test_keys_that_are_uuids(count):
    """A delete has nothing but its key."""
    table = parse_ddl("_id uuid not null, v long")
    key = json.dumps({"$binary": TEXT, "$type": "04"})
    records = [event({"_id": json.loads(key), "v": at}, at=at, key=key) for at in range(count)]
    records.append(event(None, "d", count, key))
    found = open_decoder("debezium-json", table, ["_id"], {}).decode(raw_batch(records))
    assert found.rows.column("_id").to_pylist() == [ID.bytes] * (count + 1)
    assert found.rows.column("_row_kind")[count].as_py() == RowKind.DELETE


@pytest.mark.parametrize(
    ("updates", "options", "lacking"),
    [
        ([None, None], {}, True),
        ([None, {"_id": 1}], {}, False),
        ([], {}, False),
        ([None], {"debezium.capture-mode": "change_streams_update_full"}, False),
    ],
)
def test_check_sees_a_connector_that_sends_no_documents(updates, options, lacking):
    records = [event({"_id": 0}), *(event(document, op="u") for document in updates), event(None, op="d")]
    values = [json.dumps(record["value"]).encode() for record in records]
    assert lacks_documents("debezium-json", values, options) is lacking
    assert not lacks_documents("debezium-unwrapped-json", values, options)
    other = [value.replace(b"mongodb", b"postgresql") for value in values]
    assert not lacks_documents("debezium-json", other, options)
