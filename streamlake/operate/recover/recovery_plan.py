"""The plan of a recovery: steps that `streamlake recover` shows before it carries them out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from streamlake.checkpoint.table_note import NO_CHECKPOINT
from streamlake.on_progress import OnProgress, unseen


@dataclass(frozen=True)
class Step:
    """One step of a plan: its description and its action."""

    text: str
    act: Callable[[], object]


@dataclass(frozen=True)
class Plan:
    """Steps in their order, and what a person should know before."""

    steps: tuple[Step, ...]
    warnings: tuple[str, ...] = ()

    def carry_out(self, on_progress: OnProgress = unseen) -> None:
        """Carry out the steps in their order."""
        for number, step in enumerate(self.steps):
            on_progress("steps", number, len(self.steps))
            step.act()


def named_checkpoint(checkpoint_id: int) -> str:
    """The name of a checkpoint in descriptions of steps."""
    return "no checkpoint" if checkpoint_id == NO_CHECKPOINT else f"checkpoint {checkpoint_id}"


def named_range(numbers: list[int]) -> str:
    """The name of several checkpoints; there is at least one."""
    if len(numbers) == 1:
        return f"checkpoint {numbers[0]}"
    return f"checkpoints {min(numbers)} to {max(numbers)}"
