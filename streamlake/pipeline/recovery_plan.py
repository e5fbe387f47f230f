"""What `streamlake recover` is about to do: steps that are shown before they are carried out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Step:
    """One thing that a plan does, in words, and the doing of it."""

    text: str
    act: Callable[[], object]


@dataclass(frozen=True)
class Plan:
    """Steps in their order, and what a person should know before."""

    steps: tuple[Step, ...]
    warnings: tuple[str, ...] = ()

    def carry_out(self) -> None:
        for step in self.steps:
            step.act()
