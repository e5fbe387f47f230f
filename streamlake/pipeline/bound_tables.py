"""Which tables a query of many writes, kept in its checkpoint directory: the template of their names.

Place in the flow: asked before `IcebergTables` starts, also where there is nothing to do, and by `streamlake check`; written in
its first micro-batch. The template stands for all tables: each is called for every checkpoint that has records for it, and
one that joins later begins with the first records of its topics, or with the first rows that name it. Invariant: a topic
that has been read goes on into the table that it went into before.
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
from streamlake.pipeline.known_tables import TABLES_PATH, tables_from_text
from streamlake.pipeline.quarantine import QUARANTINE_PATH, quarantine_from_text
from streamlake.pipeline.table_names import TableNames
from streamlake.source.offsets import Partition
from streamlake.spec.snapshot import MAIN_BRANCH
from streamlake.storage.locations import table_location

BOUND_PATH = f"{DIRECTORY}/template.json"


@dataclass(frozen=True)
class BoundTables:
    """`table` is the template. `adopted`: the last checkpoint before a person bound the directory to it (None: it has been
    since the first one)."""

    table: str
    branch: str = MAIN_BRANCH
    default_table: str | None = None
    adopted: int | None = None

    def to_bytes(self) -> bytes:
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
        """The inverse; None where there is none, or it is damaged: what the directory has written is compared then."""
        try:
            obj = json.loads(text or "")
            return BoundTables(obj["table"], obj["branch"], obj.get("default-table"), obj.get("adopted"))
        except (ValueError, KeyError, TypeError):
            return None

    @staticmethod
    def of(directory: SparkDirectory) -> BoundTables | None:
        return BoundTables.from_text(directory.text(BOUND_PATH))

    def follows(self, before: BoundTables) -> bool:
        """Whether a query of these tables may go on where one of those before ended. Rows that name no table may be given one
        later."""
        same_default = before.default_table in (None, self.default_table)
        return (self.table, self.branch) == (before.table, before.branch) and same_default

    def __str__(self) -> str:
        rest = "" if self.default_table is None else f" and {self.default_table}"
        return f"{self.table}{rest}" + ("" if self.branch == MAIN_BRANCH else f" (branch {self.branch})")


def template_command(template: str, branch: str, catalog: CatalogOption, location: str) -> RecoverCommand:
    """How messages name `streamlake recover` for a query of many tables, whose name does not matter there."""
    return RecoverCommand(template, f"{template}:", branch, catalog, location)


def tables_finding(
    directory: SparkDirectory, tables: BoundTables, names: TableNames, catalog: CatalogOption
) -> Finding | None:
    """What is wrong between a directory and the tables of the query that is to go on from it."""
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
    """Whether a directory of an older version may be that of these templates."""
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
    """Tables that the directory has no note of, while it has read records of their topics."""
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
        if name not in aside and (table_location(name) if catalog is None else name) not in noted
    }
    if not unknown:
        return None
    read = _read_topics(directory, done)
    found = sorted(name for name, of in unknown.items() if of & read)
    return other_tables(", ".join(found), done, directory.other_tables("", "")) if found else None


def _read_topics(directory: SparkDirectory, done: int) -> set[str]:
    """The topics of which there were records, as far as the offset log goes back."""
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
    """The file of a query that goes on; `before` is its text so far. None where it says so already."""
    known = BoundTables.from_text(before)
    adopted = None if known is None else known.adopted
    content = BoundTables(tables.table, tables.branch, tables.default_table, adopted).to_bytes()
    return None if before is not None and content.decode() == before else content


def bind_tables(directory: SparkDirectory, tables: BoundTables) -> None:
    """Bind a directory whose query does not run to other tables, as a person has chosen."""
    directory.replace(BOUND_PATH, tables.to_bytes())
