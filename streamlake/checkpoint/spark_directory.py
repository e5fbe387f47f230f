"""Reads and rewinds a Spark checkpoint directory without Spark: query id, logs, streamlake's notes.

It serves the commands that compare a directory with a table or put it back to an earlier checkpoint; a
running query reads its logs through Spark. Torn entries count as missing, as they do when the query starts.
Layout:

- `metadata` holds the query id.
- `offsets/N` says what checkpoint N covers.
- `commits/N` says that Spark has finished checkpoint N.
- `state/` holds the state of stateful operators.
- `streamlake/` holds streamlake's own files.

Invariant: only the methods that say so change the directory. They remove entries newest first, the commit log
before the offset log, so that a crash in between leaves a directory that Spark can start from.
"""

from __future__ import annotations

import json
from collections.abc import Callable

from streamlake import ids
from streamlake.checkpoint.identity import canonical_offset, offsets_digest
from streamlake.checkpoint.offset_entries import DIRECTORY, entry_from_text, entry_path, tick_of
from streamlake.checkpoint.source_logs import in_full, reader
from streamlake.checkpoint.table_log import DIRECTORY as TABLES
from streamlake.checkpoint.table_log import (
    logged_table,
    newest_written,
    table_log_path,
    table_log_to_bytes,
)
from streamlake.checkpoint.table_note import DIRECTORY as NOTES
from streamlake.checkpoint.table_note import (
    NO_CHECKPOINT,
    Noted,
    is_note,
    note_from_text,
    note_path,
    note_subject,
    note_to_bytes,
    shown_tables,
)
from streamlake.checkpoint.torn_entries import is_torn_done, is_torn_plan
from streamlake.errors import DataInvalidError, FeatureUnsupportedError, InvalidOptionError, MissingFileError
from streamlake.storage.file_io import FileIO, file_io_for
from streamlake.storage.locations import table_location

_VERSION = "v1"
_NO_OFFSET = "-"


class SparkDirectory:
    """The checkpoint directory at `location`. Raises InvalidOptionError when no query has started there."""

    def __init__(self, location: str, io: FileIO | None = None) -> None:
        self.location = table_location(location)
        self._io = file_io_for(self.location) if io is None else io
        self._written: tuple[int, dict[str, int]] | None = None
        try:
            obj = json.loads(self._io.read_bytes(f"{self.location}/metadata"))
            self.job_id = str(obj["id"])
        except MissingFileError as error:
            raise InvalidOptionError(
                f"{self.location} is not the checkpoint directory of a query: it has no file 'metadata'. "
                "Give the directory that the query is started with as its checkpointLocation"
            ) from error
        except (ValueError, KeyError, TypeError) as error:
            raise DataInvalidError(
                f"{self.location}/metadata does not hold a query's id ({error!r}); restore it from a copy"
            ) from error

    @classmethod
    def started(cls, location: str, io: FileIO | None = None) -> SparkDirectory | None:
        """The directory, or None where no query has been started.

        Raises what reading raises: storage that does not answer, or lacks a setting, says nothing of a query.
        """
        try:
            return cls(location, io)
        except InvalidOptionError as error:
            if isinstance(error.__cause__, MissingFileError):
                return None
            raise

    @property
    def planned(self) -> list[int]:
        """The checkpoints in the offset log, ascending, without a tick that still waits for its offsets."""
        numbers = self._logs()[0]
        return numbers[:-1] if numbers and self._waits(numbers[-1]) else numbers

    @property
    def completed(self) -> list[int]:
        """The checkpoints in the commit log, ascending."""
        return self._logs()[1]

    @property
    def torn(self) -> list[str]:
        """Paths, below the directory, of entries that count as missing: those of the commit log first.

        They are the newest entries of Spark's logs that are empty or cut short, on which Spark stops, and
        entries of the commit log whose plan is missing or torn.
        """
        return self._logs()[2]

    @property
    def next_checkpoint(self) -> int:
        """The checkpoint that Spark runs next: the planned one that is not done, or that after the last."""
        return max(self.last_completed + 1, self.last_planned)

    @property
    def last_planned(self) -> int:
        """The last checkpoint in the offset log; NO_CHECKPOINT for a directory without any."""
        return max(self.planned, default=NO_CHECKPOINT)

    @property
    def last_completed(self) -> int:
        """The last checkpoint that Spark has finished; NO_CHECKPOINT for a directory without any."""
        return max(self.completed, default=NO_CHECKPOINT)

    def end_offsets(self, checkpoint_id: int) -> tuple[str, ...] | None:
        """The offsets that a checkpoint ends at, as in its identity; None where the log lacks it.

        A missing or torn entry is read from streamlake's own log of offsets, where that has the checkpoint:
        Spark plans its tick again from there. Raises FeatureUnsupportedError for a log of another version.
        """
        path = f"{self.location}/offsets/{checkpoint_id}"
        try:
            content = self._io.read_bytes(path)
        except MissingFileError:
            content = b""
        if is_torn_plan(content):
            own = self.text(entry_path(checkpoint_id))
            if own is None:
                return None
            return (canonical_offset(entry_from_text(own, self._path(entry_path(checkpoint_id)))),)
        lines = content.decode().rstrip("\n").split("\n")
        if lines[0].strip() != _VERSION:
            raise FeatureUnsupportedError(
                f"{path} is an offset log of version {lines[0][:20]!r}; {_VERSION} is the version that can "
                "be read here"
            )
        offsets = ["" if line == _NO_OFFSET else canonical_offset(line) for line in lines[2:]]
        return in_full(reader(self._io), self.location, offsets)

    def text(self, name: str) -> str | None:
        """The text of one of streamlake's files below the directory; None when there is none."""
        return reader(self._io)(self._path(name))

    def replace(self, name: str, content: bytes) -> None:
        """Write one of streamlake's files below the directory, in place of an older one."""
        self._io.write_bytes(self._path(name), content)

    def note(self, table: str, branch: str) -> Noted | None:
        """The directory's note about a table and branch; None where there is none."""
        try:
            return note_from_text(self._io.read_bytes(self._path(note_path(table, branch))).decode())
        except MissingFileError:
            return None

    def noted_tables(self) -> list[tuple[str, str]]:
        """The tables and branches that the directory has notes about."""
        found = []
        for info in self._io.list_prefix(self._path(NOTES)):
            parent, _, name = info.path.rpartition("/")
            if is_note(name) and parent.endswith(f"/{NOTES}"):
                found.append(note_subject(self._io.read_bytes(info.path).decode("utf-8", "replace")))
        return [each for each in found if each is not None]

    def other_tables(self, table: str, branch: str) -> list[str]:
        """The other tables that the directory has notes about, as messages name them."""
        return shown_tables(each for each in self.noted_tables() if each != (table, branch))

    def write_note(self, noted: Noted, table: str, branch: str, agreed: int | None = None) -> None:
        """Write the note about a table.

        `agreed`: a person has accepted what the table lacks, so the table is not expected to hold checkpoints
        after this one.
        """
        if agreed is not None:
            self._agree_on_written(table, branch, agreed)
        self._io.write_bytes(self._path(note_path(table, branch)), note_to_bytes(noted, table, branch))

    def written(self, table: str, branch: str) -> int:
        """The last finished checkpoint that the directory's query of many tables has written to this one."""
        return self._all_written().get(logged_table(table, branch), NO_CHECKPOINT)

    def _agree_on_written(self, table: str, branch: str, checkpoint_id: int) -> None:
        written, name = self._all_written(), logged_table(table, branch)
        if written.get(name, NO_CHECKPOINT) > checkpoint_id:
            done = self.next_checkpoint - 1
            content = {**written, name: checkpoint_id}
            self.replace(
                table_log_path(done),
                table_log_to_bytes(self.job_id, self._digest_of(done) or "", content),
            )
            self._written = None

    def _all_written(self) -> dict[str, int]:
        done = self.next_checkpoint - 1
        if self._written is None or self._written[0] != done:
            numbers = (number for number in self._numbers(TABLES) if number <= done)
            written = newest_written(
                numbers, lambda number: self.text(table_log_path(number)), self.job_id, self._digest_of
            )
            self._written = done, written
        return self._written[1]

    def _digest_of(self, checkpoint_id: int) -> str | None:
        offsets = self.end_offsets(checkpoint_id)
        return None if offsets is None else offsets_digest(offsets)

    def go_back_to(self, checkpoint_id: int) -> None:
        """Forget every checkpoint after `checkpoint_id`, so that Spark plans the next one anew.

        NO_CHECKPOINT forgets all of them, and the operators' state.
        """
        ticks = set(self._numbers("offsets"))
        for number in reversed(self._numbers(DIRECTORY)):
            if number > checkpoint_id and number not in ticks:
                # Spark removes its entries earlier than streamlake does; a new checkpoint of the same number
                # would find this one.
                self._io.delete(self._path(entry_path(number)))
        for log in ("commits", "offsets"):
            for number in reversed(self._numbers(log)):
                if number > checkpoint_id:
                    if log == "offsets":
                        self._io.delete(self._path(entry_path(number)))
                    self._io.delete(self._path(f"{log}/{number}"))
        for number in reversed(self._numbers(TABLES)):
            if number > checkpoint_id:
                self._io.delete(self._path(table_log_path(number)))
        self._written = None
        if checkpoint_id == NO_CHECKPOINT:
            for info in list(self._io.list_prefix(self._path("state"))):
                self._io.delete(info.path)

    def remove_torn(self) -> None:
        """Delete the torn entries, so that Spark runs their checkpoints again.

        streamlake's own log of offsets stays, as Spark plans these checkpoints again from it.
        """
        for name in self.torn:
            self._io.delete(self._path(name))

    def take_new_job_id(self) -> str:
        """Turn the directory into that of another query, which goes on from here; returns the new id."""
        path = self._path("metadata")
        obj = json.loads(self._io.read_bytes(path))
        obj["id"] = self.job_id = ids.new_uuid()
        self._io.write_bytes(path, json.dumps(obj).encode())
        return self.job_id

    def _logs(self) -> tuple[list[int], list[int], list[str]]:
        """The planned checkpoints, the finished ones, and the entries that count as missing."""
        # The commit log is read first: a driver that is at work adds to the offset log first.
        completed, planned = self._numbers("commits"), self._numbers("offsets")
        torn: list[str] = []
        while planned and self._is_torn(f"offsets/{planned[-1]}", is_torn_plan):
            torn.append(f"offsets/{planned.pop()}")
        last = planned[-1] if planned else NO_CHECKPOINT
        while completed and (completed[-1] > last or self._is_torn(f"commits/{completed[-1]}", is_torn_done)):
            torn.append(f"commits/{completed.pop()}")
        return planned, completed, sorted(torn)

    def _is_torn(self, name: str, is_torn: Callable[[bytes], bool]) -> bool:
        try:
            return is_torn(self._io.read_bytes(self._path(name)))
        except MissingFileError:
            return False

    def _waits(self, checkpoint_id: int) -> bool:
        """Whether the direct path has not recorded a checkpoint's end yet, so that nothing of it was read."""
        offsets = self.end_offsets(checkpoint_id) or ()
        return len(offsets) == 1 and tick_of(offsets[0]) == checkpoint_id

    def _numbers(self, log: str) -> list[int]:
        directory = self._path(log)
        names = (info.path.rpartition("/")[2] for info in self._io.list_prefix(directory))
        return sorted(int(name) for name in names if name.isdigit())

    def _path(self, name: str) -> str:
        return f"{self.location}/{name}"
