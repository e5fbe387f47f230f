"""Which key columns an update or a delete of PostgreSQL does not bring the old value of."""

from __future__ import annotations

import json
from typing import Any

from streamlake.decode.cdc.debezium.old_keys import columns_without_old_values

ID = json.dumps({"id": 1}).encode()
WITH_SCHEMA = json.dumps({"schema": {"type": "struct"}, "payload": {"id": 1}}).encode()
ROW = {"id": 1, "email": "a", "n": 2}


def event(op: str = "u", before: Any = None, connector: str = "postgresql") -> bytes:
    source = {"connector": connector, "lsn": 1}
    return json.dumps({"op": op, "before": before, "after": ROW, "source": source}).encode()


def found(*records: tuple[bytes | None, bytes], key: tuple[str, ...] = ("email",)) -> tuple[str, ...]:
    return columns_without_old_values("debezium-json", records, {}, key)


def test_a_key_that_is_not_the_message_key() -> None:
    assert found((ID, event())) == ("email",)
    assert found((WITH_SCHEMA, event())) == ("email",)
    assert found((ID, event()), key=("id", "email")) == ("email",)
    assert found((ID, event("c")), (ID, event())) == ("email",)


def test_a_key_whose_old_value_is_known() -> None:
    assert found((ID, event()), key=("id",)) == ()
    assert found((ID, event(before=ROW))) == (), "REPLICA IDENTITY FULL"
    assert found((ID, event("c")), (ID, event("r"))) == ()
    assert found((ID, event(connector="mysql"))) == (), "which has the row before in any case"


def test_a_message_key_that_cannot_be_read_shows_nothing() -> None:
    for key in (None, b"", b"\x00\x00\x00\x00\x01\x02", b"7", b"[1]"):
        assert found((key, event())) == ()
    assert found((ID, b"{")) == ()
    assert columns_without_old_values("debezium-unwrapped-json", [(ID, event())], {}, ["email"]) == ()
