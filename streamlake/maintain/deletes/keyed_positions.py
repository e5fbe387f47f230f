"""The positions of rows that equality deletes delete, found by the key columns of the data files.

Keys are merged a bounded number at a time, and each data file is read once for each such part: the key
columns, of row groups that can have such keys. A file's keys are deleted from data files with a smaller data
sequence number (spec: Scan Planning).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import numpy as np

from streamlake.formats.columns.lineage_columns import ROW_POSITION
from streamlake.formats.columns.name_mapping import NAME_MAPPING_PROPERTY, NameMapping
from streamlake.formats.deletes.position_deletes import merged_positions
from streamlake.maintain.deletes.delete_plan import DeletedFrom
from streamlake.read.changes.change_tasks import RowsTask
from streamlake.read.changes.changed_rows import ChangeReading
from streamlake.read.column_selection import select_columns
from streamlake.read.delete_index import EqualityDeletes
from streamlake.read.scan import DEFAULT_BATCH_SIZE, readers
from streamlake.spec.metadata.data_file import DataFile, FileContent
from streamlake.table.table import Table

Array = np.ndarray[Any, Any]

KEYS_AT_ONCE = 8_000_000


class KeyedPositions:
    """Finds the rows of data files that equality deletes delete. Keeps the delete files that it has read."""

    def __init__(self, table: Table) -> None:
        others = sorted(table.schemas.values(), key=lambda each: -each.schema_id)
        text = table.properties.get(NAME_MAPPING_PROPERTY)
        reading = ChangeReading(
            table.io,
            select_columns(table.schema, [ROW_POSITION.name]),
            (table.schema, *others),
            None if text is None else NameMapping.from_json(text),
            DEFAULT_BATCH_SIZE,
        )
        self._rows = reading.rows()
        self._readers = readers(table.io)
        self._at_once = KEYS_AT_ONCE
        self._parts: dict[int, tuple[EqualityDeletes, tuple[EqualityDeletes, ...]]] = {}

    def by_position(self, file: DeletedFrom, deletes: Iterable[DataFile]) -> Array:
        """The ascending positions of a data file's rows that these position deletes of it delete."""
        task = replace(file.task, delete_files=tuple(deletes), equality_deletes=())
        positions = self._rows.files.deletes.deleted_positions(task)
        # A position delete file may name a row that the data file does not have.
        found: Array = positions[positions < file.task.data_file.record_count]
        return found

    def by_key(self, files: Sequence[DeletedFrom]) -> dict[str, Array]:
        """The ascending positions of rows that equality deletes hit, of data files that have such rows."""
        hits: dict[str, list[Array]] = {}
        with ThreadPoolExecutor(self._readers, "streamlake-deletes") as pool:
            for part in self._passes(files):
                some = [(file, keys) for file in files if (keys := _that_apply(file, part))]
                for (file, _), found in zip(some, pool.map(lambda each: self._hit(*each), some), strict=True):
                    if len(found):
                        hits.setdefault(file.path, []).append(found)
        return {path: merged_positions(parts) for path, parts in hits.items()}

    def _hit(self, file: DeletedFrom, keys: tuple[EqualityDeletes, ...]) -> Array:
        own = {each.file_path for group in keys for each in group.files}
        deletes = tuple(each for each in file.task.delete_files if each.file_path in own)
        plain = replace(file.task, delete_files=(), equality_deletes=())
        cause = replace(file.task, delete_files=deletes, equality_deletes=keys)
        batches = self._rows.read(RowsTask(False, plain, cause))
        parts = [batch.column(0).to_numpy(zero_copy_only=False) for batch in batches]
        return merged_positions(parts)

    def _passes(self, files: Iterable[DeletedFrom]) -> Iterator[list[EqualityDeletes]]:
        """Parts of all groups that apply to `files`, about `keys_at_once` keys at a time."""
        groups = {id(group): group for file in files for group in file.keys}
        taken: list[EqualityDeletes] = []
        count = 0
        for group in groups.values():
            for part in self._parts_of(group):
                keys = sum(file.record_count for file in part.files)
                if taken and count + keys > self._at_once:
                    yield taken
                    taken, count = [], 0
                taken.append(part)
                count += keys
        if taken:
            yield taken

    def _parts_of(self, group: EqualityDeletes) -> tuple[EqualityDeletes, ...]:
        """The group in parts; always the same objects, because merged keys are kept by them."""
        if id(group) not in self._parts:
            parts: list[EqualityDeletes] = []
            first = count = 0
            for at, file in enumerate(group.files):
                if at > first and count + file.record_count > self._at_once:
                    parts.append(_part(group, first, at))
                    first, count = at, 0
                count += file.record_count
            parts.append(_part(group, first, len(group.files)))
            self._parts[id(group)] = group, tuple(parts)
        return self._parts[id(group)][1]


def _part(group: EqualityDeletes, start: int, stop: int) -> EqualityDeletes:
    if stop - start == len(group.files):
        return group
    return replace(group, files=group.files[start:stop], sequence_numbers=group.sequence_numbers[start:stop])


def _that_apply(file: DeletedFrom, part: Iterable[EqualityDeletes]) -> tuple[EqualityDeletes, ...]:
    paths = {each.file_path for each in file.task.delete_files if _is_by_key(each)}
    return tuple(
        group
        for group in part
        if group.applies_to(file.task.sequence_number or 0)
        and any(each.file_path in paths for each in group.files)
    )


def _is_by_key(file: DataFile) -> bool:
    return file.content == FileContent.EQUALITY_DELETES
