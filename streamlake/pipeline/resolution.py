"""Where the rows that a checkpoint replaces are now: asked of the index when the table's head has moved.

The checkpoint's own runs name every key that it changed, so its data files need not be read again. Invariant: the
index is that of the new head, without the checkpoint's own runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from streamlake.errors import IndexDamagedError
from streamlake.index.entries import ENDS_SEARCH
from streamlake.index.lookup import KeyIndex
from streamlake.index.run import open_run
from streamlake.index.run_format import ADVICE
from streamlake.index.run_writer import RunRef
from streamlake.pipeline.table_index import Indexed
from streamlake.storage.file_io import FileIO
from streamlake.write.deleted_positions import DeletedPositions

Array = Any  # numpy array


def resolved(io: FileIO, own_runs: Sequence[RunRef], indexed: Indexed) -> dict[str, Array]:
    """Data file path -> ascending positions of the rows that the checkpoint with these runs takes out."""
    deleted = DeletedPositions()
    for ref in own_runs:
        if ref.buckets != indexed.state.buckets:
            raise IndexDamagedError(
                f"{ref.path} is of {ref.buckets} buckets, the index it is compared with of {indexed.state.buckets}; {ADVICE}"
            )
        older = [open_run(io, each) for each in indexed.state.runs_of(ref.bucket)]
        index = KeyIndex(older, indexed.live_files)
        for entries in open_run(io, ref).entries():
            replacing = np.flatnonzero(entries.flags & ENDS_SEARCH)
            deleted.add_found(index.lookup(entries.keys.take(replacing)))
    return deleted.by_file()
