"""What a sink shows of itself in an interactive session: where it writes, how, and its last checkpoint."""

from __future__ import annotations

from collections import deque

from streamlake.commit.receipt import CommitReceipt

_SHOWN = {"mode": "append", "key": (), "pipeline": None, "branch": "main", "on_error": "fail"}


class ShownSink:
    """A sink whose repr names its table and the settings that are not the defaults."""

    table: str
    receipts: deque[CommitReceipt]
    error: BaseException | None

    def __repr__(self) -> str:
        known = {name.lstrip("_"): value for name, value in vars(self).items()}
        parts = [repr(self.table)]
        parts += [
            f"{name}={list(value) if isinstance(value, tuple) else value!r}"
            for name, default in _SHOWN.items()
            if (value := known.get(name, default)) != default
        ]
        if self.receipts:
            last = self.receipts[-1]
            parts.append(f"last=checkpoint {last.checkpoint_id}, {last.outcome.value}")
        if self.error is not None:
            parts.append(f"error={type(self.error).__name__}")
        return f"{type(self).__name__}({', '.join(parts)})"
