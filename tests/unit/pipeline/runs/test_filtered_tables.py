"""Records of tables that `source-tables` leaves out are counted, and a name that meets none is told of."""

from __future__ import annotations

import logging

import pytest

from streamlake.pipeline.runs.filtered_tables import FilteredTables, skipped_summary, unmet


def test_records_of_other_tables_are_counted() -> None:
    tables = FilteredTables()
    assert skipped_summary(0, 0) == {}
    named = {"a/shop.users": 5, "a/shop.log": 7, "shop.users_old": 1}
    counts = [(("shop.users",), 8), (("shop.users", "shop.users_*"), 7), (("b/shop.*",), 13)]
    for wanted, count in counts:
        assert tables.see(wanted, named, (), "t") == count
        assert skipped_summary(count, 0) == {"streamlake.other-table-records": str(count)}
    assert tables.see(("shop.*",), {}, (), "t") == 0


def test_a_name_that_meets_no_record_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    tables = FilteredTables()
    wanted = ("shop.Users", "shop.orders")
    with caplog.at_level(logging.WARNING):
        tables.see(wanted, {"shop.orders": 3}, (), "t")
        assert caplog.messages == [], "nothing is passed over"
        for _ in range(3):
            tables.see(wanted, {"a/shop.users": 3, "a/shop.log": 1}, (), "t")
    (text,) = caplog.messages
    assert text.startswith("t: no record is of the table 'shop.Users'")
    assert "a/shop.log, a/shop.users and are passed over; did you mean 'shop.users'?" in text


def test_a_table_whose_rows_came_before_is_no_wrong_name(caplog: pytest.LogCaptureFixture) -> None:
    tables = FilteredTables()
    with caplog.at_level(logging.WARNING):
        tables.see(("shop.users",), {"shop.log": 1}, ["a/shop.users"], "t")
        tables.see(("shop.users",), {"shop.log": 1}, [], "t")
    assert caplog.messages == []


def test_what_is_said() -> None:
    named = {f"shop.t{at}": 1 for at in range(9)}
    (text,) = unmet(("elsewhere.table",), named).values()
    assert "shop.t0, shop.t1, shop.t2, shop.t3, shop.t4 and 4 more and are passed over" in text
    assert "did you mean" not in text
    assert unmet(("elsewhere.table", "shop.t1"), {"shop.t1": 4}) == {}
    assert unmet((), named) == {}
