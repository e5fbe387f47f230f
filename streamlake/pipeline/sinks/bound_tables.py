"""The table template of a query that writes many tables, recorded in its checkpoint directory.

Place in the flow: compared before `IcebergTables` starts, even with no new data, and by `streamlake check`;
written in its first micro-batch. The template stands for all tables: each is called for every checkpoint that
has records for it. A table that joins later begins with the first records of its topics, or with the first
rows that name it. Invariant: records of a topic that has been read keep going into the same table.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass

from streamlake.checkpoint.spark_directory import SparkDirectory
from streamlake.checkpoint.table_note import DIRECTORY
from streamlake.commit.findings import other_tables
from streamlake.commit.lineage import CatalogOption, Finding, RecoverCommand
from streamlake.commit.offset_summary import source_offsets
from streamlake.pipeline.sinks.discovered_tables import TABLES_PATH, tables_from_text
from streamlake.pipeline.sinks.quarantine import QUARANTINE_PATH, quarantine_from_text
from streamlake.source.offsets import Partition
from streamlake.spec.metadata.snapshot import MAIN_BRANCH
from streamlake.storage.locations import noted_table
from streamlake.tasks.table_names import TableNames

BOUND_PATH = f"{DIRECTORY}/template.json"


@dataclass(frozen=True)
class BoundTables:
    """The recorded template, `table`. `adopted` is the last checkpoint before somebody bound the directory to
    it by hand (None: it has been bound since the first checkpoint).
    """

    table: str
    branch: str = MAIN_BRANCH
    default_table: str | None = None
    adopted: int | None = None

    def to_bytes(self) -> bytes:
        """The file's content, as JSON."""
        return json.dumps(
            {
                "table": self.table,
                "branch": self.branch,
                "default-table": self.default_table,
                "adopted": self.adopted,
            },
            indent=1,
        ).encode()

    @staticmethod
    def from_text(text: str | None) -> BoundTables | None:
        """The inverse of `to_bytes`. None where there is no file or it is damaged: then the tables that the
        directory has written are compared instead.
        """
        try:
            obj = json.loads(text or "")
            return BoundTables(obj["table"], obj["branch"], obj.get("default-table"), obj.get("adopted"))
        except (ValueError, KeyError, TypeError):
            return None

    @staticmethod
    def of(directory: SparkDirectory) -> BoundTables | None:
        """The template that a checkpoint directory records; None where it records none."""
        return BoundTables.from_text(directory.text(BOUND_PATH))

    def follows(self, before: BoundTables) -> bool:
        """Whether a query of these tables may continue where a query of the tables `before` ended. A default
        table may be added later.
        """
        same_default = before.default_table in (None, self.default_table)
        return (self.table, self.branch) == (before.table, before.branch) and same_default

    def __str__(self) -> str:
        rest = "" if self.default_table is None else f" and {self.default_table}"
        return f"{self.table}{rest}" + ("" if self.branch == MAIN_BRANCH else f" (branch {self.branch})")


def template_command(template: str, branch: str, catalog: CatalogOption, location: str) -> RecoverCommand:
    """How messages name `streamlake recover` for a query of many tables, whose pipeline name is not used."""
    return RecoverCommand(template, f"{template}:", branch, catalog, location)


def tables_finding(
    directory: SparkDirectory, tables: BoundTables, names: TableNames, catalog: CatalogOption
) -> Finding | None:
    """The disagreement between a directory and the tables of the query that is to continue from it; None
    where there is none.
    """
    done = directory.next_checkpoint - 1
    if done < 0:
        return None
    before = BoundTables.of(directory)
    if before is not None and not tables.follows(before):
        return other_tables(str(tables), done, [str(before)])
    if before is not None and before.adopted is not None:
        return None
    offsets = source_offsets(directory.end_offsets(done) or ())
    if offsets is None:
        return None
    if names.by_row:
        if before is not None or _is_of_rows(directory, {names.of(topic) for topic, _ in offsets.positions}):
            return None
        return other_tables(str(tables), done, directory.other_tables("", ""))
    return _unknown_topics(directory, names, catalog, done, offsets.positions)


def _is_of_rows(directory: SparkDirectory, templates: Iterable[str]) -> bool:
    """Whether a directory of an older version may belong to these templates."""
    text = directory.text(TABLES_PATH)
    if text is not None:
        known = set(tables_from_text(text, f"{directory.location}/{TABLES_PATH}").values())
        return not known or not known.isdisjoint(templates)
    return not directory.other_tables("", "")


def _unknown_topics(
    directory: SparkDirectory,
    names: TableNames,
    catalog: CatalogOption,
    done: int,
    positions: Iterable[Partition],
) -> Finding | None:
    """A finding for tables that the directory does not know, although it has read records of their topics."""
    text = directory.text(QUARANTINE_PATH)
    aside = (
        set() if text is None else set(quarantine_from_text(text, f"{directory.location}/{QUARANTINE_PATH}"))
    )
    topics: dict[str, set[str]] = {}
    for topic, _ in positions:
        topics.setdefault(names.of(topic), set()).add(topic)
    noted = {name for name, _ in directory.noted_tables()}
    unknown = {
        name: of
        for name, of in topics.items()
        if name not in aside and noted_table(name, catalog) not in noted
    }
    if not unknown:
        return None
    read = _read_topics(directory, done)
    found = sorted(name for name, of in unknown.items() if of & read)
    return other_tables(", ".join(found), done, directory.other_tables("", "")) if found else None


def _read_topics(directory: SparkDirectory, done: int) -> set[str]:
    """The topics whose records were read, as far back as the offset log goes."""
    began: dict[Partition, int] = {}
    ended: dict[Partition, int] = {}
    for checkpoint_id in directory.planned:
        offsets = (
            source_offsets(directory.end_offsets(checkpoint_id) or ()) if checkpoint_id <= done else None
        )
        if offsets is not None:
            for part, position in {**offsets.positions, **offsets.first}.items():
                began.setdefault(part, position)
            ended = dict(offsets.positions)
    return {part[0] for part, position in ended.items() if position != began[part]}


def bound_to(before: str | None, tables: BoundTables) -> bytes | None:
    """The file of a query that continues, None where it needs no change; `before` is its text so far."""
    known = BoundTables.from_text(before)
    adopted = None if known is None else known.adopted
    content = BoundTables(tables.table, tables.branch, tables.default_table, adopted).to_bytes()
    return None if before is not None and content.decode() == before else content


def bind_tables(directory: SparkDirectory, tables: BoundTables) -> None:
    """Bind the directory of a stopped query to other tables, as a person has chosen."""
    directory.replace(BOUND_PATH, tables.to_bytes())
