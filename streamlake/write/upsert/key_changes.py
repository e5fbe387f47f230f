"""Completes rows after a key change: takes values that they left out from the row under the old key.

The old key belongs to another task. So the tasks of a checkpoint only report what they know,
and the driver puts it together:

    task of the new key   the row as far as it is known, and the old key (held rows)
    task of the old key   the row at the time of the key change, if this checkpoint changed it before (images)
    driver                otherwise the old key's row as the index has it, now or before it was deleted;
                          writes one more data file

Invariant: a held row is in no file of its task, and its key is deleted there. So it is written once, here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streamlake.formats.arrow.missing_fields import missing_field_masks
from streamlake.index.keys.keys import Keys
from streamlake.index.keys.sequence_values import SequenceValues
from streamlake.index.runs.entries import GONE, SUPERSEDES, RunFile, sort_entries
from streamlake.index.runs.lookup import Found, KeyIndex
from streamlake.index.runs.run import RunRef, open_run, write_run
from streamlake.records import KEY_CHANGE, MISSING_FIELDS, PLACE, ROW_SEQUENCE
from streamlake.spec.metadata.data_file import DataFile, FileContent
from streamlake.write.files.result import Refused, WriteResult
from streamlake.write.rows.conversion import converted
from streamlake.write.rows.row_check import RowCheck
from streamlake.write.target.output_files import OutputFiles
from streamlake.write.upsert.missing_values import MissingValuePolicy, Place
from streamlake.write.upsert.old_rows import OldRows
from streamlake.write.upsert.part_rows import BASE, NEW_KEY, SEQUENCE_VALUE, unpacked
from streamlake.write.upsert.upsert_target import UpsertTarget
from streamlake.write.upsert.upsert_task import rows_writer

Array = np.ndarray[Any, Any]
Key = tuple[Any, ...]


@dataclass(frozen=True)
class CompletedRows:
    """What the driver wrote: data files with the held rows, and key index runs for them."""

    data_files: tuple[DataFile, ...] = ()
    runs: tuple[RunRef, ...] = ()
    refused: tuple[Refused, ...] = ()
    counters: Mapping[str, int] = field(default_factory=dict)


def write_completed_rows(target: UpsertTarget, results: Iterable[WriteResult]) -> CompletedRows:
    """Write the rows that the tasks of a checkpoint held back. `target` is the one that the tasks had.

    Raises DecodeError for a value that is found nowhere when the policy is to fail,
    SchemaMismatchError, StorageError.
    """
    results = list(results)
    held = unpacked(result.held_rows for result in results)
    if held is None:
        return CompletedRows()
    counters: Counter[str] = Counter()
    policy = MissingValuePolicy(target, counters)
    rows = _Resolution(target, results, held, policy).rows()
    counters["filled"] += rows.num_rows
    table = target.table
    output = OutputFiles(table, target.buckets, 0, 1)
    writer = rows_writer(table, output)
    try:
        aligned = RowCheck(table.schema, table.location).align(rows.select(table.schema.column_names))
        places = writer.write(aligned)
        files = writer.close()
        entries = sort_entries(
            target.key.codec.encode([aligned.column(name) for name in target.key.columns]),
            places.files,
            places.positions,
            np.full(rows.num_rows, SUPERSEDES),
            [RunFile(path, own=False) for path in writer.paths],
            sequence_values=_sequence_values(rows),
        )
        runs = tuple(
            write_run(table.io, output.new_run(), part, bucket, target.buckets)
            for bucket, part in enumerate(target.bucketing.split(entries, target.key.codec))
            if len(part)
        )
    except BaseException:
        writer.abort()
        output.delete_all()
        raise
    return CompletedRows(files, runs, tuple(policy.refused), counters)


class _Resolution:
    """Finds the values of held rows. It follows a row from key to key as long as tasks report key changes."""

    def __init__(
        self, target: UpsertTarget, results: Sequence[WriteResult], held: pa.Table, policy: MissingValuePolicy
    ) -> None:
        self._target = target
        self._held = held
        self._policy = policy
        images = unpacked(result.moved_rows for result in results)
        self._images = held.slice(0, 0) if images is None else images
        self._image_masks = missing_field_masks(self._images.column(MISSING_FIELDS))
        self._by_move = {} if images is None else self._moves(images)
        self._files = {file.file_path: file for result in results for file in result.data_files}
        self._own = {result.index.bucket: result.index.run for result in results if result.index is not None}
        self._columns = target.table.schema.column_names
        rows = held.num_rows
        self._waits = {
            name: mask.copy() for name, mask in missing_field_masks(held.column(MISSING_FIELDS)).items()
        }
        self._before: Array = np.zeros(rows, dtype=bool)
        self._index = {
            name: np.where(mask, -1, np.arange(rows, dtype=np.int64)) for name, mask in self._waits.items()
        }

    def rows(self) -> pa.Table:
        """The held rows, complete, without those that are refused."""
        held = self._held
        rows = held.num_rows
        key = self._target.key.codec.encode([held.column(name) for name in self._target.key.columns])
        last: list[Key | None] = self._ids(self._other_keys(held.column(KEY_CHANGE)))
        ends = self._followed(self._ids(key), last)
        keys = self._other_keys(self._key_columns(ends))
        old = self._older_rows(keys, rows)
        lacking = {name: mask for name, mask in self._waits.items() if mask.any()}
        refused = self._policy.judged(lacking, self._place, rows)
        kept = np.flatnonzero(~refused)
        columns = {}
        for name in held.column_names:
            column = held.column(name)
            if name in self._index:
                chunks = [*column.chunks, *self._images.column(name).chunks]
                if name in old.column_names:
                    chunks += old.column(name).chunks
                index = self._index[name][kept]
                columns[name] = pa.chunked_array(chunks, column.type).take(pa.array(index, mask=index < 0))
            else:
                columns[name] = column.take(pa.array(kept))
        return pa.table(columns)

    def _followed(self, new: list[Key | None], old: list[Key | None]) -> list[int]:
        """Take values from images, following each row to the key before.

        Gives the number of the last image that each row came to, -1 when it came to none. Key changes are
        few, so they are followed one by one.
        """
        ends = [-1] * len(new)
        bounds = _sequences(self._held)
        for row, (to, from_) in enumerate(zip(new, old, strict=True)):
            seen: set[int] = set()
            bound = bounds[row]
            while (at := self._image(from_, to, bound, seen)) is not None:
                seen.add(at)
                if self._image_bases[at]:
                    self._before[row] = True
                    break
                ends[row] = at
                bound = self._image_sequences[at]
                for name, waits in self._waits.items():
                    mask = self._image_masks.get(name)
                    if waits[row] and (mask is None or not mask[at]):
                        self._index[name][row] = self._held.num_rows + at
                        waits[row] = False
                to, from_ = from_, self._image_origins[at]
        return ends

    def _image(self, from_: Key | None, to: Key | None, bound: Any, seen: set[int]) -> int | None:
        """The last image of a row that changed between two keys, not after the source position `bound`.

        None when there is none. A row may have changed back and forth, so images in `seen` do not count.
        """
        for at in reversed(self._by_move.get((from_, to), [])):
            place = self._image_sequences[at]
            if from_ is not None and at not in seen and (None in (bound, place) or place <= bound):
                return at
        return None

    def _moves(self, images: pa.Table) -> dict[tuple[Key | None, Key | None], list[int]]:
        """The image numbers by old key and new key."""
        codec = self._target.key.codec
        own = self._ids(codec.encode([images.column(name) for name in self._target.key.columns]))
        to = self._ids(self._other_keys(images.column(NEW_KEY)))
        self._image_origins = self._ids(self._other_keys(images.column(KEY_CHANGE)))
        self._image_bases = images.column(BASE).to_pylist()
        self._image_sequences = _sequences(images)
        moves: dict[tuple[Key | None, Key | None], list[int]] = {}
        for at, move in enumerate(zip(own, to, strict=True)):
            moves.setdefault(move, []).append(at)
        return moves

    def _key_columns(self, ends: Sequence[int]) -> pa.ChunkedArray:
        """The old key of each row's last key change, as a column like KEY_CHANGE."""
        held, images = self._held.column(KEY_CHANGE), self._images.column(KEY_CHANGE)
        both = pa.chunked_array([*held.chunks, *images.chunks], held.type)
        index = [row if at < 0 else self._held.num_rows + at for row, at in enumerate(ends)]
        return both.take(pa.array(index, pa.int64()))

    def _older_rows(self, keys: tuple[Keys, Array], rows: int) -> pa.Table:
        """The rows of old keys that are in files. Notes which held rows they are for."""
        waiting = _waiting(self._waits, rows) & keys[1]
        at = np.flatnonzero(waiting)
        names = [name for name, mask in self._waits.items() if mask[at].any()]
        found = self._found(keys[0].take(at), self._before[at])
        there = at[[place is not None for place in found]] if len(at) else at
        places = [place for place in found if place is not None]
        paths = tuple(dict.fromkeys(path for path, _ in places))
        numbers = {path: number for number, path in enumerate(paths)}
        old = OldRows(self._target.table).read(
            paths,
            np.array([numbers[path] for path, _ in places], dtype=np.int64),
            np.array([position for _, position in places], dtype=np.int64),
            names,
            {path: self._file(path) for path in paths},
        )
        start = self._held.num_rows + self._images.num_rows
        order: Array = np.full(rows, -1, dtype=np.int64)
        order[there] = start + np.arange(len(there))
        for name in names:
            mask = self._waits[name] & (order >= 0)
            self._index[name][mask] = order[mask]
            self._waits[name] &= ~mask
        return old

    def _found(self, keys: Keys, before: Array) -> list[tuple[str, int] | None]:
        """File and position of the newest row of each key, None when there is none.

        This is the row after the checkpoint. Where there is none, or where `before` is set, it is the row
        before the checkpoint. Else it is the row before the stream deleted it, as far as the index still
        knows it. A row that another writer has deleted does not count.
        """
        target = self._target
        sources = target.source_rows()
        places: list[tuple[str, int] | None] = [None] * len(keys)
        buckets = target.bucketing.of_keys(keys, target.key.codec)
        for bucket in np.unique(buckets).tolist():
            older = [open_run(target.table.io, ref) for ref in target.runs.get(bucket, ())]
            own = self._own.get(bucket)
            newer = [] if own is None else [open_run(target.table.io, own)]
            indexes = [KeyIndex([*newer, *older], self._is_live), KeyIndex(older, self._is_live)]
            indexes += [KeyIndex([run], self._exists) for run in older]
            mine = np.flatnonzero(buckets == bucket)
            for number, index in enumerate(indexes):
                asked = mine if number else mine[~before[mine]]
                asked = asked[[places[int(each)] is None for each in asked]] if len(asked) else asked
                found = index.lookup(keys.take(asked))
                if number < 2:
                    old = np.array([path not in self._files for path in found.paths], dtype=bool)
                    there = sources.are_there(found, old[found.file])
                    mine = np.setdiff1d(mine, asked[found.query[~there]])
                    found = found.only(there)
                for query, place in _newest(found):
                    places[int(asked[query])] = place
        return places

    def _is_live(self, path: str) -> bool:
        return path in self._target.live_files or path in self._files

    def _exists(self, path: str) -> bool:
        return path != GONE and (self._is_live(path) or self._target.table.io.exists(path))

    def _file(self, path: str) -> DataFile:
        if path in self._files:
            return self._files[path]
        if path in self._target.live_files:
            return self._target.live_files[path].data_file
        spec = self._target.table.spec
        return DataFile(
            FileContent.DATA,
            path,
            path.rpartition(".")[2],
            spec.spec_id,
            (None,) * len(spec.fields),
            record_count=0,
            file_size_in_bytes=0,
        )

    def _other_keys(self, structs: pa.ChunkedArray) -> tuple[Keys, Array]:
        """The keys in a column like KEY_CHANGE, and (n,) bool: which rows have one."""
        codec = self._target.key.codec
        valid = structs.is_valid().to_numpy(zero_copy_only=False)
        names = {part.name for part in structs.type}
        if not set(self._target.key.columns) <= names:
            valid = np.zeros(len(structs), dtype=bool)
        if not valid.any():
            return Keys(np.zeros(len(structs), dtype=np.uint64)), valid
        # Rows without a key get a null key, which is not used.
        whole = structs.combine_chunks()
        columns = [
            converted(pc.struct_field(whole, [part.name]), part.type, part.name) for part in codec.fields
        ]
        return codec.encode(columns), valid

    def _ids(self, keys: Keys | tuple[Keys, Array]) -> list[Key | None]:
        """Keys as values that compare; None where there is no key."""
        found, valid = keys if isinstance(keys, tuple) else (keys, np.ones(len(keys), dtype=bool))
        nulls = [False] * len(found) if found.nulls is None else found.nulls.tolist()
        data = [None] * len(found) if found.data is None else found.data.to_pylist()
        parts = zip(valid.tolist(), found.hashes.tolist(), nulls, data, strict=True)
        return [(hash_, null, key) if there else None for there, hash_, null, key in parts]

    def _place(self, row: int) -> Place:
        found = self._held.column(PLACE)[row].as_py()
        return None if found is None else (found["topic"], found["partition"], found["offset"])


def _sequences(rows: pa.Table) -> list[Any]:
    """The source position of each row's change; None where it is not known."""
    return (
        rows.column(ROW_SEQUENCE).to_pylist() if ROW_SEQUENCE in rows.column_names else [None] * rows.num_rows
    )


def _sequence_values(rows: pa.Table) -> SequenceValues | None:
    if SEQUENCE_VALUE not in rows.column_names:
        return None
    column = rows.column(SEQUENCE_VALUE).combine_chunks()
    return SequenceValues(column.to_numpy() if pa.types.is_integer(column.type) else column)


def _waiting(waits: Mapping[str, Array], rows: int) -> Array:
    found: Array = np.zeros(rows, dtype=bool)
    for mask in waits.values():
        found |= mask
    return found


def _newest(found: Found) -> Iterable[tuple[int, tuple[str, int]]]:
    """(query, place) of the newest row of each key."""
    order = np.lexsort((found.positions, found.file, -found.run))
    newest = {int(found.query[at]): int(at) for at in order.tolist()}
    return [(query, (found.paths[found.file[at]], int(found.positions[at]))) for query, at in newest.items()]
