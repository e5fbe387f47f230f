"""What a change does, read from any of the usual envelopes; what is not known is refused."""

from __future__ import annotations

import pyarrow as pa
import pytest

from streamlake.decode.cdc.row_kinds import SPELLINGS, row_kinds
from streamlake.errors import SchemaMismatchError
from streamlake.records import RowKind

INSERT, BEFORE, AFTER, DELETE = RowKind.INSERT, RowKind.UPDATE_BEFORE, RowKind.UPDATE_AFTER, RowKind.DELETE

ENVELOPES: dict[str, dict[str, RowKind]] = {
    "row kinds": {"+I": INSERT, "-U": BEFORE, "+U": AFTER, "-D": DELETE},
    "letters": {"I": INSERT, "U": AFTER, "D": DELETE},
    "Debezium": {"c": INSERT, "r": INSERT, "u": AFTER, "d": DELETE},
    "Canal": {"INSERT": INSERT, "UPDATE": AFTER, "DELETE": DELETE},
    "Maxwell": {"insert": INSERT, "bootstrap-insert": INSERT, "update": AFTER, "delete": DELETE},
    "Iceberg's changelog": {
        "INSERT": INSERT,
        "UPDATE_BEFORE": BEFORE,
        "UPDATE_AFTER": AFTER,
        "DELETE": DELETE,
    },
    "Delta's change feed": {
        "insert": INSERT,
        "update_preimage": BEFORE,
        "update_postimage": AFTER,
        "delete": DELETE,
    },
    "upserts": {"upsert": AFTER, "delete": DELETE},
    "mixed case and blanks": {"Insert": INSERT, " u ": AFTER, "+u": AFTER, "Delete": DELETE},
}


@pytest.mark.parametrize("envelope", ENVELOPES)
@pytest.mark.parametrize("type_", [pa.string(), pa.large_string(), pa.string_view()], ids=str)
def test_texts(envelope: str, type_: pa.DataType) -> None:
    spellings = ENVELOPES[envelope]
    found = row_kinds(pa.array([*spellings, *reversed(spellings)], type_), "t")
    assert found.type == pa.int8()
    assert found.to_pylist() == [*spellings.values(), *reversed(spellings.values())]


def test_no_spelling_stands_for_two_kinds() -> None:
    folded = [text.lower() for texts in SPELLINGS.values() for text in texts]
    assert len(set(folded)) == len(folded)


@pytest.mark.parametrize("type_", [pa.int8(), pa.int32(), pa.int64(), pa.uint8()], ids=str)
def test_codes(type_: pa.DataType) -> None:
    found = row_kinds(pa.array([0, 3, 2, 1], type_), "t")
    assert found.equals(pa.array([0, 3, 2, 1], pa.int8()))


def test_chunks_slices_and_dictionaries() -> None:
    column = pa.array(["+I", "-D", "u", "D"])
    assert row_kinds(pa.chunked_array([column.slice(1, 2), column.slice(3)]), "t").to_pylist() == [3, 2, 3]
    assert row_kinds(column.slice(1).dictionary_encode(), "t").to_pylist() == [3, 2, 3]
    assert row_kinds(pa.chunked_array([], pa.string()), "t").to_pylist() == []
    assert row_kinds(pa.array([], pa.int32()), "t").to_pylist() == []


@pytest.mark.parametrize(
    ("values", "type_", "message"),
    [
        (["+I", "t"], pa.string(), r"^t, column op, row 1: 't' is not a row kind\. Known are 0 or \+I, .*-D"),
        (["", "I"], pa.string(), r"row 0: '' is not a row kind"),
        (["I", None], pa.string(), r"row 1: null is not a row kind"),
        ([0, 4], pa.int8(), r"row 1: 4 is not a row kind"),
        ([0, 1, -1], pa.int64(), r"row 2: -1 is not a row kind"),
        ([2**33], pa.int64(), r"row 0: 8589934592 is not a row kind"),
        ([None, 1], pa.int8(), r"row 0: null is not a row kind"),
        ([None, None], pa.null(), r"row 0: null is not a row kind"),
        ([1.0], pa.float64(), r"column op: a row kind cannot be read from the type double\. Known are"),
        ([True], pa.bool_(), r"cannot be read from the type bool"),
        ([b"I"], pa.binary(), r"cannot be read from the type binary"),
    ],
)
def test_anything_else_is_refused(values: list[object], type_: pa.DataType, message: str) -> None:
    with pytest.raises(SchemaMismatchError, match=message):
        row_kinds(pa.array(values, type_), "t, column op")


def test_the_row_is_counted_over_chunks() -> None:
    with pytest.raises(SchemaMismatchError, match="row 3: 'x' is not a row kind"):
        row_kinds(pa.chunked_array([["I", "U"], ["D", "x", "y"]]), "t")
