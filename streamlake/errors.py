"""The errors that streamlake raises, sorted by what the caller may do next.

```
StreamlakeError
  InvalidOptionError          fix the configuration
    UnknownArgumentError        correct the argument's name
  SchemaMismatchError         the rows do not fit the table: fix the stream or the table
    NewSchemaError              they would, if the table's schema changed as the error says
  DecodeError                 this record goes to the rejects
    NoRejectsTableError         it would, if there were a rejects table: the driver creates it
  NewTablesError              rows belong to undiscovered tables: the driver opens or creates them
  NewSourceError              a topic's changes name a table that is not recorded yet: the driver records it
  TooManyRejectsError         more records were rejected than allowed: find out why, then allow or repair them
  MisplacedKeyError           rows of one key may be in several partitions: the driver shuffles them by key
  SourceError                 the stream cannot be read
    DataLossError               records that were due are gone from the source: choose what to do
  StorageError                may be retried
    MissingFileError            the file is not there
  TableNotFoundError          create the table, or correct the name
  TableAlreadyExistsError     load the table instead
  DataInvalidError            a file or metadata is corrupt: stop
    IndexDamagedError           a file of the key index is unusable: rebuild it, the table is not affected
  FeatureUnsupportedError     a format feature that is not read or not written here
  LineageError                checkpoint and table disagree: the message lists the ways out
  CommitError
    CommitConflictError         certainly not committed: refresh and retry
    ConflictValidationError     certainly not committed: retrying blindly is wrong
      HeadMovedError              the change was computed for another snapshot: compute it again
    CommitStateUnknownError     perhaps committed: clean nothing, read the table first
    FencedError                 a newer writer owns this pipeline: stop
```

All of them pickle, because they cross from executor to driver: they take positional message arguments only.
"""

from __future__ import annotations


class StreamlakeError(Exception):
    """Base class of streamlake's errors. The message says what happened, to what, and what to do next."""


class InvalidOptionError(StreamlakeError):
    """An option, argument or pipeline file is wrong: nothing was started; fix the configuration."""


class UnknownArgumentError(InvalidOptionError, TypeError):
    """A function or class has no argument of this name. Also a TypeError, as Python raises it."""


class SchemaMismatchError(StreamlakeError):
    """Rows do not fit the table's schema (missing column, wrong type, null in a required column)."""


class NewSchemaError(SchemaMismatchError):
    """Rows would fit a table with more columns, wider types or fewer required values.

    `wanted` is the schema that the rows have, in the specification's JSON; names count, ids do not. The
    driver evolves the table and writes once more where it may.
    """

    def __init__(self, message: str, wanted: str = "") -> None:
        super().__init__(message, wanted)
        self.wanted = wanted

    def __str__(self) -> str:
        return str(self.args[0])


class DecodeError(StreamlakeError):
    """A record cannot be decoded or converted; it names topic, partition and offset."""


class NoRejectsTableError(DecodeError):
    """A record is to go to the rejects, and there is no table for them yet.

    The driver creates it and writes once more.
    """


class NewTablesError(StreamlakeError):
    """Rows belong to tables that are not discovered yet; `names` has their names.

    The driver opens or creates them and writes once more.
    """

    def __init__(self, message: str, names: tuple[str, ...] = ()) -> None:
        super().__init__(message, names)
        self.names = names

    def __str__(self) -> str:
        return str(self.args[0])


class NewSourceError(StreamlakeError):
    """Changes of a `topic` are of a source table that is not recorded for it: `table` ("": they name none).

    The driver records it with the Iceberg table that they go into, and writes once more.
    """

    def __init__(self, message: str, topic: str = "", table: str = "") -> None:
        super().__init__(message, topic, table)
        self.topic = topic
        self.table = table

    def __str__(self) -> str:
        return str(self.args[0])


class TooManyRejectsError(StreamlakeError):
    """More records of a checkpoint were rejected than `max_rejects` allows; nothing of it was committed."""


class MisplacedKeyError(StreamlakeError):
    """A row is in another partition than its key says, so that other tasks may have rows of the same key.

    The driver has the checkpoint shuffled by the rows' keys where it may.
    """


class SourceError(StreamlakeError):
    """The source cannot be reached or read; the checkpoint stays where it is."""


class DataLossError(SourceError):
    """Records between the committed offset and the first available one no longer exist in the source."""


class StorageError(StreamlakeError):
    """Bytes could not be read or written; the operation may be retried."""


class MissingFileError(StorageError):
    """The file that was asked for does not exist."""


class TableNotFoundError(StreamlakeError):
    """There is no Iceberg table at this name or location."""


class TableAlreadyExistsError(StreamlakeError):
    """A table is already there, so none was created."""


class DataInvalidError(StreamlakeError):
    """A metadata, manifest or data file is damaged or contradicts the specification: stop."""


class IndexDamagedError(DataInvalidError):
    """A file of the key index is missing, damaged or of another version: rebuild the index from the table."""


class FeatureUnsupportedError(StreamlakeError):
    """A feature of the table format that streamlake does not read or does not write."""


class LineageError(StreamlakeError):
    """Checkpoint and table disagree about what was committed; the message lists the ways out."""


class CommitError(StreamlakeError):
    """A commit did not go through as asked."""


class CommitConflictError(CommitError):
    """Certainly not committed, because another writer was first: refresh and retry."""


class ConflictValidationError(CommitError):
    """Certainly not committed, because another writer's change contradicts it: a blind retry is wrong."""


class StagedUnfitError(ConflictValidationError):
    """Certainly not committed, because the table has changed so that the staged checkpoint no longer fits it.

    Spark writes the checkpoint again where it still has its rows.
    """


class FormatUpgradedError(ConflictValidationError):
    """Certainly not committed: the table has a newer format version, which takes other delete files."""


class HeadMovedError(ConflictValidationError):
    """Certainly not committed: the branch is no longer at the snapshot that the change was computed for.

    `expected` and `found` are snapshot ids (None: no snapshot).
    """

    def __init__(self, message: str, expected: int | None = None, found: int | None = None) -> None:
        super().__init__(message, expected, found)
        self.expected = expected
        self.found = found

    def __str__(self) -> str:
        return str(self.args[0])

    @staticmethod
    def of(table: str, expected: int | None, found: int | None) -> HeadMovedError:
        """The error for the table of this name."""
        return HeadMovedError(
            f"{table}: the change was computed for {_named(expected)}, but the branch is at {_named(found)} "
            "now, by another writer; refresh the table and compute the change again",
            expected,
            found,
        )


def _named(snapshot_id: int | None) -> str:
    return "an empty table" if snapshot_id is None else f"snapshot {snapshot_id}"


class OutdatedValuesError(CommitError):
    """Certainly not committed: another writer has changed rows whose values the checkpoint took over.

    The driver writes the checkpoint once more.
    """


class CommitStateUnknownError(CommitError):
    """Perhaps committed: delete nothing, read the table before anything else."""


class FencedError(CommitError):
    """A newer writer owns this pipeline: this one stops."""
