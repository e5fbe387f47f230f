"""Random histories with rewrites: what `delete_history` does, and files that are removed, rewritten and compacted.

After every commit the live rows are remembered, so that the changes between any two commits are the difference of two
dictionaries. Rows are numbered, and a rewritten row keeps its number.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from hypothesis import strategies as st

from streamlake.formats.columns.lineage_columns import ROW_ID
from streamlake.spec.metadata.data_file import DataFile, FileContent
from streamlake.table.producers.overwrite_files import OverwriteFiles
from streamlake.table.producers.row_delta import RowDelta
from tests.helpers.delete_history import NUMBER, VALUES, File, History, arrow_rows, record
from tests.helpers.invariants import live_data_files, live_entries

Row = dict[int, Any]


class ReplaceFiles(OverwriteFiles):
    """A rewrite that changes no rows, as compactions commit it."""

    @property
    def operation(self) -> str:
        return "replace"


@dataclass(frozen=True)
class State:
    """The rows after one commit by number, and the row id of each on tables of version 3."""

    snapshot_id: int
    operation: str | None
    rows: Mapping[int, Row]
    row_ids: Mapping[int, int | None]


class ChangeHistory(History):
    """Adds rewrites to a history, and remembers the state after each commit."""

    def __init__(
        self,
        location: str,
        draw: Callable[[Any], Any],
        version: int,
        types: Sequence[str],
        values: Mapping[str, Sequence[Any]] = VALUES,
        *,
        nested_keys: bool = True,
    ) -> None:
        super().__init__(location, draw, version, types, values, nested_keys=nested_keys)
        self.states: list[State] = []
        self.delete_files: list[tuple[list[File], File, DataFile]] = []

    def commit(self) -> None:
        """One commit of any kind."""
        kind = self.draw(st.sampled_from(["delta", "delta", "rewrite", "rewrite", "compact", "undelete"]))
        before = self.table.current_snapshot
        if kind == "compact":
            self._compact()
        elif kind == "undelete":
            self._undelete()
        else:
            self._delta(rewrites=kind == "rewrite")
        self.table.refresh()
        after = self.table.current_snapshot
        if after is not None and after != before:
            rows = {row[NUMBER]: row for row in self.model.live()}
            self.states.append(State(after.snapshot_id, after.operation, rows, self._row_ids()))

    def texts(self, rows: Mapping[int, Row]) -> dict[int, str]:
        """Each row as the current schema shows it; what a dropped column holds is not seen."""
        fields = self.schema.fields
        ids = self.schema.fields_by_id
        named = [record(fields, {part: row.get(part) for part in (*row, *ids)}) for row in rows.values()]
        values = arrow_rows(named, self.schema).to_pylist()
        return {number: repr(tuple(row.values())) for number, row in zip(rows, values, strict=True)}

    def _row_ids(self) -> dict[int, int | None]:
        if self.version < 3:
            return {}
        found = self.table.scan(columns=["n", "_row_id"]).to_arrow().to_pylist()
        return {row["n"]: row["_row_id"] for row in found}

    def _delta(self, *, rewrites: bool) -> None:
        sequence = self.table.metadata.last_sequence_number + 1
        delta = RowDelta(self.table.table)
        files: list[DataFile] = []
        removed = False
        rewritten = self._some_files() if rewrites else []
        for file, data_file in rewritten:
            removed = True
            delta.remove_rows(data_file)
            self.model.data.remove(file)
            rows = [self._altered(row) for row in self._live_of(file) if self.draw(st.integers(0, 3))]
            if rows:
                files.append(self._rewritten(file.scope, rows, sequence))
        files += [self._data(sequence) for _ in range(self.draw(st.integers(0, 2)))]
        files += [self._equality(sequence) for _ in range(self.draw(st.integers(0, 2)))]
        files += self._positions(sequence)
        for each in files:
            (delta.add_rows if each.is_data else delta.add_deletes)(each)
        if files or removed:
            delta.commit()

    def _compact(self) -> None:
        """The live rows of some files of one partition in one file."""
        found = self._some_files()
        if not found:
            return
        scope = found[0][0].scope
        operation = ReplaceFiles(self.table.table)
        rows: list[Row] = []
        for file, data_file in found:
            if file.scope == scope:
                operation.delete_file(data_file)
                rows += self._live_of(file)
                self.model.data.remove(file)
        sequence = self.table.metadata.last_sequence_number + 1
        if rows:
            operation.add_file(self._rewritten(scope, rows, sequence, keeps_ids=True))
        operation.commit()

    def _undelete(self) -> None:
        """A delete file goes, and rows come back."""
        # Those that no data file needs any more have gone with the files.
        live = (
            {entry.data_file.identity for entry in live_entries(self.table.table)} if self.states else set()
        )
        there = [each for each in self.delete_files if each[2].identity in live]
        if not there:
            return
        chosen = self.draw(st.sampled_from(there))
        self.delete_files.remove(chosen)
        group, entry, data_file = chosen
        group.remove(entry)
        operation = RowDelta(self.table.table).remove_deletes(data_file)
        operation.commit()

    def _some_files(self) -> list[tuple[File, DataFile]]:
        if not self.model.data:
            return []
        by_path = {file.file_path: file for file in live_data_files(self.table.table)}
        chosen = self.draw(st.lists(st.sampled_from(self.model.data), min_size=1, max_size=2, unique_by=id))
        return [(file, by_path[file.path]) for file in chosen]

    def _live_of(self, file: File) -> list[Row]:
        return [row for at, row in enumerate(file.rows) if not self.model._is_deleted(file, at, row)]

    def _altered(self, row: Row) -> Row:
        """The row with another value, or as it was."""
        part = self.draw(st.sampled_from([None, *(each for each in self.types if each not in self.dropped)]))
        return dict(row) if part is None else {**row, part: self._value(part)}

    def _rewritten(
        self, scope: tuple[Any, ...], rows: list[Row], sequence: int, *, keeps_ids: bool | None = None
    ) -> DataFile:
        rows = [{part: value for part, value in row.items() if part not in self.dropped} for row in rows]
        schema, stored = self.schema, rows
        if self.version >= 3 and (self.draw(st.booleans()) if keeps_ids is None else keeps_ids):
            ids = self.states[-1].row_ids
            schema = replace(schema, fields=(*schema.fields, ROW_ID))
            stored = [{**row, ROW_ID.field_id: ids[row[NUMBER]]} for row in rows]
        file = self._write(schema, [record(schema.fields, row) for row in stored], scope)
        self.model.data.append(File(file.file_path, sequence, scope, rows))
        return file

    def _equality(self, sequence: int) -> DataFile:
        """Equality deletes: of any keys, or of keys that rows of an older file have, deleted already or not."""
        older = [file for file in self.model.data if file.sequence < sequence]
        if older and self.draw(st.integers(0, 3)):
            file = self._aimed(self.draw(st.sampled_from(older)), sequence)
        else:
            file = super()._equality(sequence)
        self.delete_files.append((self.model.equality, self.model.equality[-1], file))
        return file

    def _aimed(self, target: File, sequence: int) -> DataFile:
        part = self.draw(st.sampled_from([NUMBER, *(each for each in self.keys if each not in self.dropped)]))
        schema = self.schema.select([self.schema.name_of(part) or ""])
        chosen = self.draw(st.lists(st.sampled_from(target.rows), min_size=1, max_size=2))
        rows = [{NUMBER: None, part: row.get(part)} for row in chosen]
        scope = self.draw(st.sampled_from([target.scope, ()]))
        more = {"content": FileContent.EQUALITY_DELETES, "equality_ids": (part,)}
        file = self._write(schema, [record(schema.fields, row) for row in rows], scope, **more)
        self.model.equality.append(File(file.file_path, sequence, scope, rows, (part,)))
        return file

    def _positions(self, sequence: int) -> list[DataFile]:
        before = len(self.model.positions)
        files = super()._positions(sequence)
        for entry, file in zip(self.model.positions[before:], files, strict=True):
            self.delete_files.append((self.model.positions, entry, file))
        return files
