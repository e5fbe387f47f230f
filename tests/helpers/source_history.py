"""A table of a database and the changes that its connector tells: Debezium's messages in partitions, what is TOASTed left out.

The state is kept beside, so a table that follows can be compared with it. A change of the key is two messages that may be
in two partitions; a truncate is one message in any of them.
"""

from __future__ import annotations

import json
import random
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from streamlake.records import RAW_RECORDS

PLACEHOLDER = "__debezium_unavailable_value"
SCHEMA = "id long not null, name string, big string, more string"
_TOASTED = ("big", "more")


@dataclass
class SourceHistory:
    """`rows`: id -> the other columns. `messages`: (place in the log, partition, record), in the order of the log."""

    source: random.Random
    partitions: int = 2
    rows: dict[int, dict[str, Any]] = field(default_factory=dict)
    messages: list[tuple[int, int, dict[str, Any]]] = field(default_factory=list)
    lsn: int = 100

    def run(self, steps: int, *, keys: int = 6, moves: bool = True, truncates: bool = True) -> None:
        """That many statements, as chance has it."""
        kinds = ["insert"] * 3 + ["update"] * 4 + ["delete"] + ["move"] * 3 * moves + ["truncate"] * truncates
        for _ in range(steps):
            kind = self.source.choice(kinds)
            self.lsn += self.source.choice((1, 1, 7))
            if kind == "truncate" and self.source.random() < 0.4:
                self.rows.clear()
                self._send(self.source.randrange(self.partitions), None, "t", None, None)
            elif kind == "insert":
                free = [key for key in range(keys) if key not in self.rows]
                if free:
                    self._bring(
                        self.source.choice(free), {name: self._text() for name in ("name", *_TOASTED)}, "c"
                    )
            elif self.rows and kind in ("update", "delete", "move"):
                getattr(self, f"_{kind}")(self.source.choice(sorted(self.rows)), keys)

    def raw(self, messages: list[tuple[int, int, dict[str, Any]]], start: int = 0) -> pa.RecordBatch:
        """Messages as a batch of raw records."""
        made = [
            {"topic": "t", "partition": partition, "offset": start + at, "timestamp": None, **record}
            for at, (_, partition, record) in enumerate(messages)
        ]
        return pa.RecordBatch.from_pylist(made, schema=RAW_RECORDS)

    def _update(self, key: int, keys: int) -> None:
        row = dict(self.rows[key])
        told = dict(row)
        for name in ("name", *_TOASTED):
            if self.source.random() < 0.4:
                row[name] = told[name] = self._text()
            elif name in _TOASTED:
                told[name] = PLACEHOLDER
        self._bring(key, row, "u", told)

    def _delete(self, key: int, keys: int) -> None:
        del self.rows[key]
        self._take(key, None)

    def _move(self, key: int, keys: int) -> None:
        free = [each for each in range(keys) if each not in self.rows]
        if not free:
            return
        new = self.source.choice(free)
        row = self.rows.pop(key)
        told = dict(row)
        for name in _TOASTED:
            if self.source.random() < 0.3:
                row[name] = told[name] = self._text()
            else:
                told[name] = PLACEHOLDER
        self._take(key, new)
        self._bring(new, row, "c", told, key)

    def _bring(
        self,
        key: int,
        row: dict[str, Any],
        op: str,
        told: dict[str, Any] | None = None,
        old: int | None = None,
    ) -> None:
        self.rows[key] = row
        header = {} if old is None else {"__debezium.oldkey": {"id": old}}
        self._send(key % self.partitions, {"id": key}, op, None, {"id": key, **(told or row)}, header)

    def _take(self, key: int, new: int | None) -> None:
        header = {} if new is None else {"__debezium.newkey": {"id": new}}
        before = {"id": key, "name": None, "big": None, "more": None}
        self._send(key % self.partitions, {"id": key}, "d", before, None, header)
        self.messages.append((self.lsn, key % self.partitions, _record({"id": key}, None, {})))

    def _send(
        self,
        partition: int,
        key: Any,
        op: str,
        before: Any,
        after: Any,
        headers: dict[str, Any] | None = None,
    ) -> None:
        origin = {"connector": "postgresql", "db": "d", "schema": "s", "table": "t", "lsn": self.lsn}
        value = {"before": before, "after": after, "source": origin, "op": op}
        self.messages.append((self.lsn, partition, _record(key, value, headers or {})))

    def _text(self) -> str | None:
        return self.source.choice((None, "", f"v{self.source.randrange(10**6)}"))


def _record(key: Any, value: Any, headers: dict[str, Any]) -> dict[str, Any]:
    return {
        "key": None if key is None else json.dumps(key).encode(),
        "value": None if value is None else json.dumps(value).encode(),
        "headers": [{"key": name, "value": json.dumps(one).encode()} for name, one in headers.items()],
    }
