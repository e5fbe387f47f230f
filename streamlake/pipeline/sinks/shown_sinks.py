"""What a sink shows of itself in an interactive session: where it writes, how, and its last checkpoint."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Any

from streamlake.commit.receipt import CommitReceipt

SHOWN = {"mode": "append", "key": (), "pipeline": None, "branch": "main", "on_error": "fail"}
"""The settings that are shown where they are not these defaults."""


def shown_sink(
    kind: str,
    table: str,
    settings: Mapping[str, Any],
    receipts: deque[CommitReceipt],
    error: BaseException | None,
) -> str:
    """The repr of a sink of the class `kind`: its table and the settings that are not the defaults."""
    parts = [repr(table)]
    parts += [
        f"{name}={list(value) if isinstance(value, (tuple, list)) else value!r}"
        for name, default in SHOWN.items()
        if (value := settings.get(name, default)) != default
    ]
    if receipts:
        last = receipts[-1]
        parts.append(f"last=checkpoint {last.checkpoint_id}, {last.outcome.value}")
    if error is not None:
        parts.append(f"error={type(error).__name__}")
    return f"{kind}({', '.join(parts)})"
