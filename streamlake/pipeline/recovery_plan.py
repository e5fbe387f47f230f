"""What `streamlake recover` is about to do: steps that are shown before they are carried out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from streamlake.checkpoint.table_note import NO_CHECKPOINT


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


def named_checkpoint(checkpoint_id: int) -> str:
    """A checkpoint as steps name it."""
    return "no checkpoint" if checkpoint_id == NO_CHECKPOINT else f"checkpoint {checkpoint_id}"


def named_range(numbers: list[int]) -> str:
    """Several of them; there is at least one."""
    if len(numbers) == 1:
        return f"checkpoint {numbers[0]}"
    return f"checkpoints {min(numbers)} to {max(numbers)}"
