"""The kept JSON text of snapshots and log, against writing each metadata from nothing."""

from __future__ import annotations

import json
import random
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from streamlake.formats.manifests import metadata_json
from streamlake.formats.manifests.metadata_json import metadata_bytes, parse_metadata
from streamlake.spec.metadata.snapshot import Snapshot, SnapshotLogEntry
from streamlake.spec.metadata.table_metadata import TableMetadata, metadata_to_json, new_table_metadata
from streamlake.spec.partitioning.partition_spec import UNPARTITIONED
from streamlake.spec.types.ddl import parse_ddl


def empty(uuid: str) -> TableMetadata:
    return new_table_metadata(
        location="/t", table_uuid=uuid, now_ms=1, schema=parse_ddl("id long"), spec=UNPARTITIONED
    )


def grown(base: TableMetadata, number: int, note: str) -> TableMetadata:
    snapshot = Snapshot(
        number, None, number, number, f"/t/{note}.avro", {"operation": "append", "note": note}
    )
    return replace(
        base,
        snapshots=(*base.snapshots, snapshot),
        snapshot_log=(*base.snapshot_log, SnapshotLogEntry(number, number)),
    )


def check(metadata: TableMetadata) -> None:
    data = metadata_bytes(metadata)
    assert json.loads(data) == metadata_to_json(metadata)
    assert metadata_to_json(parse_metadata(data, "p")) == metadata_to_json(metadata)


def test_the_text_follows_growth_retries_expiry_and_other_tables() -> None:
    chance = random.Random(7)
    tables = {name: empty(name) for name in "abc"}
    for number in range(1, 300):
        name = chance.choice("abc")
        base = tables[name]
        kind = chance.random()
        if kind < 0.6:
            tables[name] = grown(base, number, "é" if kind < 0.1 else "x")
        elif kind < 0.8:
            check(grown(grown(base, number, "lost"), number + 1000, "too"))
            tables[name] = grown(base, number, "won")
        elif kind < 0.9 and base.snapshots:
            cut = chance.randrange(len(base.snapshots))
            tables[name] = replace(base, snapshots=base.snapshots[cut:], snapshot_log=base.snapshot_log[cut:])
        else:
            tables[name] = replace(base, properties={"p": str(number)})
        check(tables[name])


def test_many_tables_do_not_pile_up() -> None:
    for number in range(100):
        check(grown(empty(f"table-{number}"), 1, "x"))
    assert len(metadata_json._joined_texts) <= 16


def test_an_item_that_cannot_be_written_leaves_nothing_behind() -> None:
    base = grown(empty("bad"), 1, "x")
    check(base)
    bad = replace(base, snapshots=(*base.snapshots, Snapshot(2, None, 2, 2, "l", {"operation": object()})))  # type: ignore[dict-item]
    for _ in range(2):
        with pytest.raises(TypeError):
            metadata_bytes(bad)
        check(grown(base, 3, "y"))
        check(base)


def test_threads_that_write_one_table_do_not_mix_their_texts() -> None:
    tables = [empty("shared") for _ in range(4)]

    def work(at: int) -> None:
        for number in range(60):
            tables[at] = grown(tables[at], number * 10 + at, f"thread-{at}")
            check(tables[at])

    with ThreadPoolExecutor(4) as pool:
        for done in [pool.submit(work, at) for at in range(4)]:
            done.result()
