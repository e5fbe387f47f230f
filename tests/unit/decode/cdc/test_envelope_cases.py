"""Every case under tests/cases/envelopes: records as each program documents them, and the changes they are.

A case is a YAML file: `format`, `schema`, `key`, `options`; `records` with key, value (JSON, or text as it is) and
headers; `changes`, one per row: row kind -> row, with `record`, `sequence`, `missing` and key moves; and what else the
batch must give. Left out columns are null. `bulk: false` where not all records can be read together.
"""

from __future__ import annotations

from datetime import date, datetime, time
from decimal import Decimal
from pathlib import Path

import pytest
import yaml

from streamlake.decode.cdc import envelope_decoder
from streamlake.decode.cdc.envelopes import open_decoder
from streamlake.decode.values.envelope import Records
from streamlake.records import ROW_KIND, RowKind
from streamlake.spec.types.ddl import parse_ddl
from tests.unit.decode.raw_records import raw_batch

CASES = sorted((Path(__file__).parents[3] / "cases" / "envelopes").glob("*.yaml"))
REPEATED = 12


class Loader(yaml.SafeLoader):
    """Dates stay text."""


Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in found if tag != "tag:yaml.org,2002:timestamp"]
    for first, found in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


def readable(value):
    """A value as the cases write it."""
    if isinstance(value, (date, datetime, time)):
        return value.isoformat()
    if isinstance(value, Decimal):
        return str(value)
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, dict):
        return {name: readable(part) for name, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [readable(part) for part in value]
    return value


def text_of(header):
    return None if header is None else header.decode()


def shown(changes):
    """A batch's changes in the form of the cases."""
    moves = {move.row: move for move in changes.moves}
    rows = []
    for at, row in enumerate(changes.rows.to_pylist()):
        kind = RowKind(row.pop(ROW_KIND)).symbol
        found = {kind: readable(row), "record": int(changes.records[at])}
        if changes.sequence[at].is_valid:
            found["sequence"] = changes.sequence[at].as_py()
        missing = sorted(name for name, mask in changes.missing.items() if mask[at])
        if missing:
            found["unset"] = missing
        if at in moves:
            found["from-key"], found["to-key"] = text_of(moves[at].from_key), text_of(moves[at].to_key)
        rows.append(found)
    return {
        "changes": rows,
        "truncates": [
            {"record": one.record, "table": one.table, "sequence": one.sequence} for one in changes.truncates
        ],
        "rejects": [{"record": one.record, "reason": one.reason} for one in changes.rejects],
        "ignored": dict(changes.ignored),
        "tombstones": changes.tombstones,
    }


def expected(case, columns):
    rows = []
    for change in case.get("changes", []):
        (kind,) = change.keys() & {"+I", "-U", "+U", "-D"}
        row = {name: change[kind].get(name) for name in columns}
        assert change[kind].keys() <= row.keys()
        rows.append({**change, kind: row})
    return {
        "changes": rows,
        "truncates": case.get("truncates", []),
        "rejects": case.get("rejects", []),
        "ignored": case.get("ignored", {}),
        "tombstones": case.get("tombstones", 0),
    }


def times(result, count, records):
    """What `count` copies of the records give."""

    def copies(name):
        return [
            {**one, "record": one["record"] + copy * records} for copy in range(count) for one in result[name]
        ]

    return {
        **{name: copies(name) for name in ("changes", "truncates", "rejects")},
        "ignored": {name: number * count for name, number in result["ignored"].items()},
        "tombstones": result["tombstones"] * count,
    }


@pytest.mark.parametrize("path", CASES, ids=[path.stem for path in CASES])
def test_case(path, monkeypatch):
    case = yaml.load(path.read_text(), Loader)
    schema = parse_ddl(case["schema"])
    records = case["records"]
    wanted = expected(case, schema.column_names)
    decoder = open_decoder(case["format"], schema, case.get("key", []), case.get("options", {}))
    assert shown(decoder.decode(raw_batch(records), keep_rejects=True)) == wanted
    many = decoder.decode(raw_batch(records * REPEATED), keep_rejects=True)
    assert shown(many) == times(wanted, REPEATED, len(records))
    many.rows.validate(full=True)
    if case.get("bulk", True):
        # Raises NotBulkError otherwise.
        decoder._envelope.bulk(Records.of(raw_batch(records * REPEATED)))
    # One by one, whatever could be read in bulk.
    monkeypatch.setattr(envelope_decoder, "_ALONE", 1 << 30)
    assert shown(decoder.decode(raw_batch(records), keep_rejects=True)) == wanted


def test_there_are_cases():
    assert len(CASES) >= 1
