"""What an error says on one line of a terminal."""

from __future__ import annotations

from streamlake.errors import StreamlakeError


def describe(error: BaseException) -> str:
    """One line for an error: its message, with the kind in front where the message does not speak for itself."""
    text = " ".join(str(error).split())
    if isinstance(error, StreamlakeError):
        return text
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    kind = type(error).__name__
    return f"{kind}: {text[:500]} (--debug shows where)" if text else f"{kind} (--debug shows where)"
