"""Where each connector says that a change stands in its database's log: in bulk as one by one, and in the log's order."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamlake.decode.cdc.debezium.debezium_source import position_of
from streamlake.decode.values.text_columns import NotBulkError
from streamlake.formats.arrow.arrow_schema import arrow_type
from streamlake.spec.types.data_types import StructType


def in_bulk(connector: str, sources: list[dict[str, Any]]) -> list[int | None]:
    position = position_of(connector)
    type_ = arrow_type(StructType(position.fields))
    names = [part.name for part in position.fields]
    rows = [{name: source.get(name) for name in names} for source in sources]
    found = position.column(pa.array(rows, type_))
    assert found.type == pa.int64()
    return list(found.to_pylist())


def one_by_one(connector: str, sources: list[dict[str, Any]]) -> list[int | None]:
    return [position_of(connector).value(source) for source in sources]


BLOCKS = st.tuples(st.integers(0, (1 << 31) - 1), st.integers(0, (1 << 32) - 1), st.integers(0, 65_535))


@settings(max_examples=50, deadline=None)
@given(st.lists(st.one_of(st.none(), BLOCKS), max_size=8), st.booleans())
def test_sql_servers_places_order_as_its_log_does(
    lsns: list[tuple[int, int, int] | None], upper: bool
) -> None:
    texts = [None if lsn is None else "{:08x}:{:08x}:{:04x}".format(*lsn) for lsn in lsns]
    sources = [{"commit_lsn": text.upper() if text and upper else text} for text in texts]
    found = one_by_one("sqlserver", sources)
    assert in_bulk("sqlserver", sources) == found
    placed = sorted((lsn, place) for lsn, place in zip(lsns, found, strict=True) if lsn is not None)
    places = [place for _, place in placed]
    assert places == sorted(places)
    assert len({lsn[:2] for lsn, _ in placed}) == len(set(places))


@pytest.mark.parametrize(
    "wrong", ["", "x", "00000027:00000758", "80000000:00000000:0000", "00000027:0000075g:0003"]
)
def test_what_is_no_place_of_sql_server(wrong: str) -> None:
    with pytest.raises(ValueError, match="not an LSN of SQL Server"):
        one_by_one("sqlserver", [{"commit_lsn": wrong}])
    with pytest.raises(NotBulkError):
        in_bulk("sqlserver", [{"commit_lsn": "00000027:00000758:0003"}, {"commit_lsn": wrong}])


def test_the_events_of_a_compressed_transaction_have_one_place() -> None:
    """Their rows are counted anew in each event, so that they tell no order."""
    sources = [{"file": "log.000003", "pos": 484, "row": row} for row in (0, 5, 0)]
    assert in_bulk("mysql", sources) == one_by_one("mysql", sources) == [3 << 36 | 484] * 3
