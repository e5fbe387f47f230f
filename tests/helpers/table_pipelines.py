"""Pipelines from table to table for commands that do not run them: the file, the directory, a sink's commits."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from streamlake.checkpoint.identity import CheckpointIdentity, canonical_offset
from streamlake.checkpoint.offset_entries import entry_path, entry_to_bytes, tick_text
from streamlake.commit.marker import Fence, Marker, marker_property, marker_summary
from streamlake.pipeline.iceberg.snapshot_enumerator import SnapshotEnumerator
from streamlake.source.iceberg.iceberg_source import IcebergSource
from streamlake.source.iceberg.table_offset import TableOffset
from streamlake.table.producers.append_files import AppendFiles
from streamlake.tables import LoadedTable, load_table
from tests.unit.read.written_tables import data_files

JOB = "job-1"
FILE = """
name: silver
source:
  iceberg:
    table: {source}
    {arguments}
    options: {options}
sink: {{table: {table}, {sink}}}
checkpoint: {checkpoint}
trigger: {trigger}
"""


class TablePipeline:
    """One pipeline that reads `source`: its file, and what a query would have left in directory and sink."""

    def __init__(self, home: Path, source: LoadedTable) -> None:
        self.source = source
        self.table = home / "silver"
        self.checkpoint = home / "checkpoint"
        self.file = home / "silver.yaml"
        self.log: list[TableOffset] = []

    def write(
        self,
        *,
        sink: str = "create: true",
        arguments: str = "",
        table: Any = None,
        trigger: str = "{processing-time: 0 seconds}",
        **options: Any,
    ) -> str:
        """Write the pipeline file; underscores in names of options stand for hyphens."""
        named = {key.replace("_", "-"): value for key, value in options.items()}
        text = FILE.format(
            source=self.source.location,
            arguments=arguments,
            options=json.dumps(named),
            sink=sink,
            table=self.table if table is None else table,
            checkpoint=self.checkpoint,
            trigger=trigger,
        )
        self.file.write_text(text)
        return str(self.file)

    def step(self, *, done: bool = True, **options: Any) -> TableOffset:
        """Plan one more micro-batch into the checkpoint directory, and finish it."""
        named = {
            "monitor-interval": "0 ms",
            **{key.replace("_", "-"): value for key, value in options.items()},
        }
        source = IcebergSource(self.source.location, options=named)
        enumerator = SnapshotEnumerator(load_table(self.source.location).table, source)
        end = enumerator.next(self.log[-1]) if self.log else enumerator.first()
        return self.add(end, done=done)

    def add(self, end: TableOffset, *, done: bool = True) -> TableOffset:
        """Put a micro-batch that ends at an offset into the checkpoint directory."""
        number = len(self.log)
        self.log.append(end)
        files = {
            "metadata": json.dumps({"id": JOB}),
            f"offsets/{number}": f"v1\n{{}}\n{tick_text(number)}",
            entry_path(number): entry_to_bytes(end.to_text()).decode(),
        }
        if done:
            files[f"commits/{number}"] = "v1\n{}"
        for name, text in files.items():
            path = self.checkpoint / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        return end

    def identity(self, number: int) -> CheckpointIdentity:
        """A checkpoint of the log."""
        texts = [canonical_offset(each.to_text()) for each in self.log]
        start = (texts[number - 1],) if number else ()
        return CheckpointIdentity("silver", JOB, number, start, (texts[number],))

    def commit(self, number: int, rows: list[dict[str, Any]], sink: LoadedTable) -> None:
        """Commit a checkpoint's rows to the sink, as the stream does."""
        operation = AppendFiles(sink.table)
        for file in data_files(sink, rows):
            operation.append_file(file)
        identity = self.identity(number)
        operation.set_summary(marker_summary(identity))
        marker = Marker.of(identity)
        operation.set_properties(marker_property("silver", "main", marker, Fence(1, "h"), (), 1))
        operation.commit()
        sink.refresh()
