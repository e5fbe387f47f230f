"""Examples of the docs, run as a reader runs them: the code is the page's, only paths and hosts are those of the test."""

from __future__ import annotations

import json
import re
import signal
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from streamlake import create_table, load_table
from streamlake.errors import TableNotFoundError
from tests.helpers.batch_write import append
from tests.helpers.docs import DOCS, blocks
from tests.helpers.processes import kill_group, tail, wait_until
from tests.helpers.spark import run_driver, started_driver

if TYPE_CHECKING:
    import subprocess

    from tests.helpers.broker import KafkaBroker

START_SECONDS = 120


def program(home: Path, name: str, page: str, number: int, **replaced: str) -> Path:
    """The page's python block of this number as a file, with other texts in the place of some of its own."""
    text = blocks(DOCS / page, "python")[number].text
    for old, new in replaced.items():
        assert PLACES[old] in text, f"{page} does not say {PLACES[old]} any more"
        text = text.replace(PLACES[old], new)
    path = home / name
    path.write_text(text)
    return path


PLACES = {
    "quickstart": "/tmp/quickstart",
    "lake": "/lake",
    "broker": "broker:9092",
    "topic": '["orders"]',
}
"""What the pages say, by the names that tests give it."""


def rows(table: Path) -> int:
    try:
        return load_table(table).scan().count()
    except TableNotFoundError:
        return 0


def wait_for(driver: subprocess.Popen[bytes], home: Path, is_there: Callable[[], bool], what: str) -> None:
    """Until the running program has done something; fails when it ends before."""

    def done() -> bool:
        assert driver.poll() is None, f"the program has ended:\n{tail(home / 'stderr')}"
        return is_there()

    wait_until(done, START_SECONDS, what)


@pytest.mark.spark
def test_the_quickstart_survives_a_kill(tmp_path: Path) -> None:
    stream = program(tmp_path, "quickstart.py", "quickstart.md", 0, quickstart=str(tmp_path))
    look = program(tmp_path, "look.py", "quickstart.md", 1, quickstart=str(tmp_path))
    table = tmp_path / "events"
    first, second = tmp_path / "first", tmp_path / "second"
    with started_driver(stream, home=first) as driver:
        wait_for(driver, first, lambda: rows(table) >= 2000, "two seconds of rows")
        kill_group(driver)
    before = rows(table)
    with started_driver(stream, home=second) as driver:
        wait_for(driver, second, lambda: rows(table) >= before + 2000, "rows after the restart")
        said = run_driver(look, home=tmp_path / "look").stdout
        driver.send_signal(signal.SIGTERM)
        driver.wait(60)
    count, different, largest = map(int, re.findall(r"\d+", said))
    assert count == different == largest + 1
    assert count >= before + 2000
    assert (
        "CommitReceipt" in (first / "stdout").read_text()
        or "CommitReceipt" in (second / "stdout").read_text()
    )


@pytest.mark.spark
def test_the_first_example_of_the_kafka_guide(tmp_path: Path, kafka_broker: KafkaBroker) -> None:
    topic = kafka_broker.create_topic(partitions=2)
    orders = [
        {"id": at, "ts": f"2024-05-0{1 + at % 3}T12:00:00Z", "customer": f"c{at % 7}", "amount": at + 0.25}
        for at in range(500)
    ]
    kafka_broker.produce(topic, [json.dumps(order).encode() for order in orders])
    script = program(
        tmp_path,
        "orders.py",
        "guides/kafka.md",
        0,
        lake=str(tmp_path),
        broker=kafka_broker.bootstrap_servers,
        topic=f'["{topic}"]',
    )
    table, home = tmp_path / "orders", tmp_path / "run"
    with started_driver(script, home=home) as driver:
        wait_for(driver, home, lambda: rows(table) >= 500, "the topic's records")
    loaded = load_table(table)
    assert sorted(loaded.scan().to_arrow()["id"].to_pylist()) == list(range(500))
    assert loaded.scan("id = 40").to_arrow()["customer"].to_pylist() == ["c5"]
    assert [str(field.transform) for field in loaded.spec.fields] == ["day"]


@pytest.mark.spark
def test_the_guide_to_tables_copies_one(tmp_path: Path) -> None:
    page = "guides/tables-as-streams.md"
    orders = create_table(tmp_path / "orders", "id long, customer string, amount double")
    amounts = pa.array([5.0, 15.0, 25.0])
    rows_of = {"id": pa.array([1, 2, 3]), "customer": pa.array(["a", "b", "c"]), "amount": amounts}
    append(orders.table, pa.table(rows_of))
    script = program(tmp_path, "large_orders.py", page, 0, lake=str(tmp_path))
    run_driver(script, home=tmp_path / "driver")
    found = load_table(tmp_path / "large_orders").scan().to_arrow()
    assert sorted(found["id"].to_pylist()) == [2, 3]
