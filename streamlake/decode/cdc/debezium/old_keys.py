"""Check for updates and deletes that do not say which row they change, by a sample of records.

Used by `streamlake check`. PostgreSQL logs the old values of the replica identity only. By default that is
the primary key, which is Debezium's message key, too. Where the sink replaces rows by other columns, the old
row is not found after a change of these columns or a delete. Invariant: a record with the whole before image
shows that REPLICA IDENTITY FULL is set.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from streamlake.decode.cdc.debezium.debezium_parts import debezium_parts
from streamlake.decode.cdc.debezium.nulled_values import EVENTS, is_bare_update


def columns_without_old_values(
    format: str,
    records: Iterable[tuple[bytes | None, bytes]],
    options: Mapping[str, str],
    key: Sequence[str],
) -> tuple[str, ...]:
    """The columns of the sink's `key` that are not in the message key; `records` are (message key, value).

    None where no update leaves the before image out, or no message key can be read as JSON.
    """
    if format not in EVENTS:
        return ()
    form = debezium_parts(format, options)[1]
    for message_key, value in records:
        names = _names(message_key)
        if not names or set(key) <= names:
            continue
        with suppress(ValueError):  # the decoder reports records that cannot be read
            payload = form.payload(value)[0]
            if isinstance(payload, dict) and is_bare_update(payload):
                return tuple(name for name in key if name not in names)
    return ()


def _names(message_key: bytes | None) -> set[str]:
    """The fields of a message key in JSON; empty for any other."""
    found: Any = None
    with suppress(ValueError):
        found = json.loads(message_key or b"null")
    if isinstance(found, dict) and {"schema", "payload"} == set(found):
        found = found["payload"]
    return set(found) if isinstance(found, dict) else set()
