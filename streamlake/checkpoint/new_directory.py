"""A new checkpoint directory of the direct path that begins where a table's last commit ends.

For a directory that was lost: `streamlake recover` writes it, without Spark, and then binds it to the table.
It looks as if a query had read everything up to some Kafka offsets in checkpoint 0, so that Spark plans
checkpoint 1 next, and the direct path reads on from there (`offset_entries`). Invariant: the file with the
query's id, without which the directory is none, is written last.
"""

from __future__ import annotations

import json

from streamlake import clock, ids
from streamlake.checkpoint.heartbeat import HEARTBEAT_PATH
from streamlake.checkpoint.offset_entries import entry_path, entry_to_bytes, tick_text
from streamlake.checkpoint.spark_directory import SparkDirectory
from streamlake.errors import InvalidOptionError
from streamlake.storage.file_io import FileIO
from streamlake.storage.locations import table_location

FIRST = 0
"""The checkpoint that stands for everything before."""


def require_new(location: str, io: FileIO) -> None:
    """Raises InvalidOptionError where there is anything in the directory but the heartbeat of a driver whose
    start was refused.
    """
    root = table_location(location)
    listed = (info for info in io.list_prefix(root) if info.path != f"{root}/{HEARTBEAT_PATH}")
    found = next(listed, None)
    if found is not None:
        raise InvalidOptionError(
            f"{location} is not new: it holds {found.path}. A directory that is there says itself where its "
            "stream goes on; give one that does not exist yet, and leave the old one alone"
        )


def write_directory(location: str, io: FileIO, offsets: str) -> SparkDirectory:
    """Write a directory whose checkpoint FIRST ends at `offsets`, the text of a source's offsets."""
    root = table_location(location)
    require_new(root, io)
    plan = {"batchWatermarkMs": 0, "batchTimestampMs": clock.now_ms(), "conf": {}}
    files = {
        entry_path(FIRST): entry_to_bytes(offsets).decode(),
        f"offsets/{FIRST}": f"v1\n{json.dumps(plan)}\n{tick_text(FIRST)}",
        f"commits/{FIRST}": 'v1\n{"nextBatchWatermarkMs":0}',
        "metadata": json.dumps({"id": ids.new_uuid()}),
    }
    for name, text in files.items():
        io.write_bytes(f"{root}/{name}", text.encode())
    return SparkDirectory(root, io)
