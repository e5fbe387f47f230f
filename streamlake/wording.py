"""Words in messages and in what commands print: numbers of things ("2 rows"), errors of libraries."""

from __future__ import annotations


def counted(count: int, thing: str, things: str | None = None) -> str:
    """A number, with separators, and the thing in singular or plural (`things`; None: with an s)."""
    return f"{count:,} {thing if count == 1 else things or f'{thing}s'}"


def named_error(error: BaseException) -> str:
    """An error of a library with its kind, once: kafka-python's text begins with the kind already."""
    kind, text = type(error).__name__, str(error)
    return text if text.startswith(kind) else f"{kind}: {text}"
