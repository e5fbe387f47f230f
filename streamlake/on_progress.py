"""How a long command says how far it is, to whoever shows it."""

from __future__ import annotations

from collections.abc import Callable

OnProgress = Callable[[str, int, int | None], None]
"""Called with the current step, how much of it is done, and its total (None: not known)."""


def unseen(step: str, done: int, total: int | None) -> None:
    """An OnProgress that shows nothing."""
