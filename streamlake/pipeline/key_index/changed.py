"""The changes that an upsert checkpoint makes to its table, held by its run between writing and commit."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from streamlake.index.runs.run_writer import RunRef
from streamlake.index.state import IndexState
from streamlake.spec.metadata.data_file import DataFile
from streamlake.write.upsert.truncation import TruncatePosition


@dataclass(frozen=True)
class Changed:
    """The changes of a checkpoint: everything that its snapshot adds and removes, and the key index after it.

    `own_runs` hold the checkpoint's own entries; `rewritten` are the `data_files` that copy-on-write made of
    older ones; `truncated_below` is the source position of the checkpoint's last truncate, and `counters` are
    the driver's. `took_moved`: rows whose key changed took values over from rows of the new key.
    """

    data_files: tuple[DataFile, ...]
    delete_files: tuple[DataFile, ...]
    removed: tuple[DataFile, ...]
    state: IndexState | None
    own_runs: tuple[RunRef, ...] = ()
    rewritten: tuple[DataFile, ...] = ()
    truncated_below: TruncatePosition | None = None
    counters: Mapping[str, int] = field(default_factory=dict)
    took_moved: bool = False

    @property
    def files(self) -> tuple[DataFile, ...]:
        """All files that the snapshot adds, data files first."""
        return (*self.data_files, *self.delete_files)
