"""The reference to a position map, as snapshots and index states name it."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass


@dataclass(frozen=True)
class PositionMapRef:
    """A position map's file, its size in bytes, the CRC-32 of its footer, and its number of stretches."""

    path: str
    bytes: int
    crc: int
    stretches: int

    def to_text(self) -> str:
        """The reference as a snapshot's summary has it."""
        return json.dumps(asdict(self), separators=(",", ":"))

    @staticmethod
    def from_text(text: str) -> PositionMapRef:
        """The reference in a snapshot's summary. Raises ValueError where it is none."""
        try:
            content = json.loads(text)
            path, numbers = content["path"], [content[name] for name in ("bytes", "crc", "stretches")]
        except (KeyError, TypeError, ValueError) as cause:
            raise ValueError(f"this names no position map: {text!r}") from cause
        if not isinstance(path, str) or not all(type(number) is int for number in numbers):
            raise ValueError(f"this names no position map: {text!r}")
        return PositionMapRef(path, *numbers)
