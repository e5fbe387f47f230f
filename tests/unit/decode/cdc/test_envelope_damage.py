"""Records of every case with parts of them damaged: nothing but rejects comes of it, and both ways agree."""

from __future__ import annotations

import copy
import random
from dataclasses import replace

import pytest
import yaml

from streamlake.decode.cdc import envelope_decoder
from streamlake.decode.cdc.envelopes import open_decoder
from streamlake.spec.types.ddl import parse_ddl
from tests.unit.decode.cdc.test_envelope_cases import CASES, Loader, shown
from tests.unit.decode.raw_records import raw_batch

JUNK = [
    None,
    True,
    0,
    -1,
    1.5,
    10**30,
    "",
    "x",
    "2026-01-02",
    "AA==",
    [],
    [[]],
    [None],
    {},
    {"a": 1},
    {"$oid": 5},
]


def places(value, path=()):
    yield path
    parts = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for name, part in parts:
        yield from places(part, (*path, name))


def damaged(record, chance):
    record = copy.deepcopy(record)
    path = chance.choice(list(places(record["value"])))
    junk = chance.choice(JUNK)
    if not path:
        return {**record, "value": junk if junk is not None else "null"}
    parent = record["value"]
    for name in path[:-1]:
        parent = parent[name]
    if isinstance(parent, dict) and chance.random() < 0.2:
        del parent[path[-1]]
    else:
        parent[path[-1]] = junk
    return record


@pytest.mark.parametrize("path", CASES, ids=[path.stem for path in CASES])
def test_damage_gives_rejects_only(path, monkeypatch):
    case = yaml.load(path.read_text(), Loader)
    chance = random.Random(path.stem)
    records = [record for record in case["records"] if isinstance(record["value"], dict)]
    batch = raw_batch([damaged(chance.choice(records), chance) for _ in range(150)])
    arguments = (case["format"], parse_ddl(case["schema"]), case.get("key", []), case.get("options", {}))
    found = open_decoder(*arguments).decode(batch, keep_rejects=True)
    found.rows.validate(full=True)
    accounted = {*found.records.tolist(), *(one.record for one in [*found.rejects, *found.truncates])}
    assert len(accounted) + sum(found.ignored.values()) + found.tombstones == 150
    monkeypatch.setattr(envelope_decoder, "_ALONE", 1 << 30)
    single = open_decoder(*arguments).decode(batch, keep_rejects=True)
    assert shown(replace(found, rejects=())) == shown(replace(single, rejects=()))
    assert [one.record for one in found.rejects] == [one.record for one in single.rejects]


def test_damaged_records_cost_passes_over_their_neighbours_only(monkeypatch):
    decoder = open_decoder("debezium-json", parse_ddl("id long, v string"), ["id"], {})
    envelope = decoder._envelope
    read = []
    bulk = envelope.bulk
    monkeypatch.setattr(envelope, "bulk", lambda records: read.append(len(records)) or bulk(records))
    count, every = 10_000, 100
    source = {"connector": "postgresql", "db": "d", "schema": "s", "table": "t"}
    good = {"op": "c", "before": None, "source": source}
    damaged = ["{", "[1]", b"\xff", {**good, "op": "zz", "after": {"id": 1}}, {**good, "after": {"id": "x"}}]
    values = [
        damaged[at // every % 5] if at % every == 7 else {**good, "after": {"id": at, "v": "x"}}
        for at in range(count)
    ]
    changes = decoder.decode(raw_batch([{"value": value} for value in values]), keep_rejects=True)
    assert [reject.record for reject in changes.rejects] == list(range(7, count, every))
    assert changes.rows.column("id").to_pylist() == [at for at in range(count) if at % every != 7]
    assert sum(read) < 20 * count
    assert len(read) < 30 * count // every
