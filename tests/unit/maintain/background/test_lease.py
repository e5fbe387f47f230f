"""The lease of a table's maintenance: one holder at a time, by the table alone, and by no commit too many."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from streamlake import clock
from streamlake.catalog.open import open_table
from streamlake.maintain.background.lease import LEASE, Lease, lease_of, take_lease
from streamlake.table.updates.update_properties import UpdateProperties
from tests.helpers.tables import make_table


@pytest.fixture
def location(tmp_path: Path) -> str:
    return make_table(tmp_path / "t").location


def test_one_has_it(location: str, monkeypatch: pytest.MonkeyPatch) -> None:
    now = clock.now_ms()
    monkeypatch.setattr(clock, "now_ms", lambda: now)
    assert take_lease(open_table(location), "a", 100) is None
    assert lease_of(open_table(location).properties) == Lease("a", now + 100_000)
    assert take_lease(open_table(location), "b", 100) == Lease("a", now + 100_000)
    assert lease_of(open_table(location).properties) == Lease("a", now + 100_000)
    # The holder is gone, and its lease runs out.
    now += 100_000
    assert take_lease(open_table(location), "b", 100) is None
    assert take_lease(open_table(location), "a", 100) == Lease("b", now + 100_000)


def test_it_is_renewed_only_when_half_of_it_is_over(location: str, monkeypatch: pytest.MonkeyPatch) -> None:
    now = clock.now_ms()
    monkeypatch.setattr(clock, "now_ms", lambda: now)
    table = open_table(location)
    take_lease(table, "a", 100)
    version = table.metadata
    now += 49_000
    assert take_lease(table, "a", 100) is None
    assert table.metadata is version, "no commit"
    now += 2_000
    assert take_lease(table, "a", 100) is None
    assert lease_of(table.properties) == Lease("a", now + 100_000)


def test_a_table_that_is_behind_looks_first(location: str) -> None:
    mine, others = open_table(location), open_table(location)
    take_lease(others, "b", 100)
    assert take_lease(mine, "a", 100) is not None


@pytest.mark.parametrize(
    "text", ["", "what?", "{}", '{"holder": "b"}', '{"holder": "b", "until_ms": 99999999999999}']
)
def test_a_damaged_lease_binds_nobody(location: str, text: str) -> None:
    table = open_table(location)
    UpdateProperties(table).set(LEASE, text).commit()
    assert take_lease(table, "a", 100) is None
    found = lease_of(table.properties)
    assert found is not None
    assert found.holder == "a"


def test_of_many_at_once_one_wins(location: str) -> None:
    barrier = threading.Barrier(6)
    got: list[tuple[str, Lease | None]] = []

    def take(holder: str) -> None:
        table = open_table(location)
        barrier.wait()
        got.append((holder, take_lease(table, holder, 100)))

    threads = [threading.Thread(target=take, args=(name,)) for name in "abcdef"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    [winner] = [holder for holder, other in got if other is None]
    assert {other.holder for _, other in got if other is not None} == {winner}
