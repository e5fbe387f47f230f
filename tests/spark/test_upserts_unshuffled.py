"""Changes from Kafka that need no shuffle, because a message's key is made of the row's: the same tables, whatever happens."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from streamlake import load_table
from streamlake.catalog.open import open_table
from streamlake.errors import InvalidOptionError, MisplacedKeyError
from streamlake.index.state import IndexState
from streamlake.operate.doctor.index_check import check_index
from streamlake.operate.doctor.index_status import index_key, index_status
from streamlake.pipeline.key_index.index_states import named_states
from streamlake.pipeline.runs import table_writes
from streamlake.table.updates.update_properties import UpdateProperties
from tests.helpers.invariants import check_table
from tests.helpers.kafka_stream import KafkaStream

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.helpers.broker import KafkaBroker

SCHEMA = "id long, name string, version long, op string"
SHUFFLE = "streamlake.upsert.shuffle"


class Changes(KafkaStream):
    """A topic of changes whose keys are their rows', and the rows that they lead to."""

    def __init__(self, broker: KafkaBroker, home: Path, partitions: int = 2) -> None:
        super().__init__(broker, home, partitions)
        self.rows: dict[int, tuple[str, int]] = {}
        self.version = 0
        self.random = random.Random(7)

    def source(self, **options: object) -> Any:
        return super().source(**{"schema": SCHEMA, **options})

    def sink(self, **options: Any) -> Any:
        return super().sink(
            **{"mode": "upsert", "key": ["id"], "sequence_by": ["version"], "row_kind": "op", **options}
        )

    def send(self, count: int, *, keys: int = 400, partition: int | None = None) -> None:
        """Changes of random keys, a seventh of them deletes; by the producer's partitioner, or all through one partition."""
        messages = []
        for _ in range(count):
            self.version += 1
            id_, op = self.random.randrange(keys), "d" if self.random.random() < 1 / 7 else "u"
            if op == "d":
                self.rows.pop(id_, None)
            else:
                self.rows[id_] = (f"n{self.version}", self.version)
            change = {"id": id_, "name": f"n{self.version}", "version": self.version, "op": op}
            messages.append((str(id_).encode(), json.dumps(change).encode()))
        self.broker.produce(self.topic, messages, partition=partition)

    def late(self, id_: int) -> None:
        """A change from before everything else, which must not bring the row back."""
        change = {"id": id_, "name": "late", "version": 0, "op": "u"}
        self.broker.produce(self.topic, [(str(id_).encode(), json.dumps(change).encode())])

    def require_right(self) -> None:
        """The table has the rows, its index leads to them, and nothing about it is odd."""
        found = load_table(self.location).scan().to_arrow().to_pylist()
        assert sorted((row["id"], row["name"], row["version"]) for row in found) == sorted(
            (id_, *row) for id_, row in self.rows.items()
        )
        table = open_table(self.location)
        check_table(table, files_exist=True)
        check = check_index(
            table, index_status(table, "main", index_key(table, "main", ("id",), ("version",)))
        )
        assert check.is_good
        assert check.rows >= len(self.rows)

    def state(self) -> IndexState:
        table = open_table(self.location)
        named = next(iter(named_states(table.metadata, "main")))
        return IndexState.from_bytes(table.io.read_bytes(named.path), named.path)


@pytest.fixture
def shuffles(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many slots each shuffle had so far."""
    found: list[int] = []
    by_slot = table_writes.by_slot

    def counted(shuffle_blocks: Any, slots: int) -> Any:
        found.append(slots)
        return by_slot(shuffle_blocks, slots)

    monkeypatch.setattr(table_writes, "by_slot", counted)
    return found


@pytest.fixture
def changes(spark: SparkSession, kafka_broker: KafkaBroker, tmp_path: Path) -> Changes:
    return Changes(kafka_broker, tmp_path)


def test_one_stage_through_restarts_and_a_lost_index(changes: Changes, shuffles: list[int]) -> None:
    changes.send(1_500)
    changes.run(max_offsets_per_trigger=500)
    changes.require_right()
    state = changes.state()
    assert (state.buckets, json.loads(state.message_key)["partitioner"]) == (2, "murmur2")
    changes.send(300)
    changes.run()
    changes.require_right()
    for path in Path(changes.location, "metadata", "_index").iterdir():
        path.unlink()
    changes.send(300)
    changes.run()
    changes.require_right()
    assert changes.state().message_key == state.message_key
    assert shuffles == []


def test_the_same_table_with_and_without_a_shuffle(
    changes: Changes, shuffles: list[int], tmp_path: Path
) -> None:
    changes.send(1_000)
    changes.run(changes.sink(properties={SHUFFLE: "always"}), max_offsets_per_trigger=500)
    changes.require_right()
    assert len(shuffles) == 2
    assert changes.state().message_key == ""
    # An index of hashes goes into the buckets of partitions, with the tombstones that it has.
    gone = next(id_ for id_ in range(400) if id_ not in changes.rows)
    changes.late(gone)
    changes.send(300)
    table = open_table(changes.location)
    UpdateProperties(table).set(SHUFFLE, "auto").commit()
    changes.run()
    changes.require_right()
    assert changes.state().message_key != ""
    assert len(shuffles) == 2


def test_rows_in_other_partitions_are_shuffled(changes: Changes, shuffles: list[int]) -> None:
    changes.send(800)
    changes.run()
    changes.send(200, partition=1)
    sink = changes.run()
    changes.require_right()
    assert [receipt.checkpoint_id for receipt in sink.receipts] == [1]
    assert shuffles == [2]
    state = changes.state()
    assert (state.message_key != "", state.shuffled_until) == (True, (1, 2))
    changes.send(200)
    changes.run()
    changes.require_right()
    assert shuffles == [2]
    # The second time it takes two checkpoints before it is tried again, also by another driver.
    for count, partition in ((100, 0), (100, None), (100, None)):
        changes.send(count, partition=partition)
        changes.run()
        changes.require_right()
    assert shuffles == [2, 2, 2]


def test_never_means_never(changes: Changes, shuffles: list[int], tmp_path: Path) -> None:
    sink = changes.sink(properties={SHUFFLE: "never"})
    changes.send(300)
    changes.run(sink)
    before = dict(changes.rows)
    changes.send(50, partition=0)
    with pytest.raises(MisplacedKeyError, match=r"table: the row with the key .*'id': .*shuffle=auto"):
        changes.run()
    changes.rows = before
    changes.require_right()
    other = Changes(changes.broker, tmp_path / "other")
    other.broker.produce(other.topic, [(b"k-%d" % number, b'{"id":%d}' % number) for number in range(30)])
    with pytest.raises(
        InvalidOptionError, match=r"shuffle is 'never', but the keys of the messages, such as b'k-"
    ):
        other.run(other.sink(properties={SHUFFLE: "never"}))
    assert shuffles == []


@pytest.mark.parametrize(("before", "after"), [(2, 4), (2, 3), (1, 2)])
def test_partitions_are_added(
    before: int,
    after: int,
    spark: SparkSession,
    kafka_broker: KafkaBroker,
    tmp_path: Path,
    shuffles: list[int],
) -> None:
    changes = Changes(kafka_broker, tmp_path, before)
    changes.send(600)
    changes.run()
    changes.require_right()
    changes.send(600)  # not yet read, and in partitions that keys then leave
    kafka_broker.add_partitions(changes.topic, after)
    changes.send(600)
    changes.run(max_offsets_per_trigger=400)
    changes.require_right()
    changes.send(300)
    shuffled = len(shuffles)
    changes.run()
    changes.require_right()
    state = changes.state()
    assert state.buckets == {4: 2, 3: 3, 2: 2}[after]
    assert (len(shuffles) == 0) == (after == 4)
    if after == 4:
        assert len(shuffles) == shuffled


def test_other_keys_are_shuffled_as_ever(changes: Changes, shuffles: list[int]) -> None:
    messages = [(b"order", b'{"id":%d,"name":"a","version":1,"op":"u"}' % number) for number in range(60)]
    changes.broker.produce(changes.topic, messages)
    changes.broker.produce(changes.topic, [value for _, value in messages], partition=1)
    changes.run()
    assert changes.ids() == list(range(60))
    assert shuffles == [2]
    assert changes.state().message_key == ""
