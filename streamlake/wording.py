"""Words for numbers of things in messages and in what commands print: "1 row", "2 rows"."""

from __future__ import annotations


def counted(count: int, thing: str, things: str | None = None) -> str:
    """A number, with separators, and the thing in singular or plural (`things`; None: with an s)."""
    return f"{count:,} {thing if count == 1 else things or f'{thing}s'}"
