"""The source table of each topic's changes, recorded as a property of the table that they go into.

Place in the flow: a task that reads the first changes of a topic asks for the record, see `source_tables`,
and reads again once it is there. Invariant: it is there before a row of the topic is written, so that
truncates and source positions of one source table never count for rows of another, whichever pipelines and
topics write the table.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterable, Mapping

from streamlake import clock
from streamlake.decode.cdc.source_tables import PROPERTY, kept_sources, with_source
from streamlake.errors import HeadMovedError, InvalidOptionError, NewSourceError, StreamlakeError
from streamlake.pipeline.key_index.indexed import Indexed
from streamlake.spec.metadata.snapshot import MAIN_BRANCH
from streamlake.spec.metadata.table_metadata import TableMetadata
from streamlake.table.options import RetryOptions
from streamlake.table.table import Table
from streamlake.table.updates.metadata_changes import branch_head, with_properties
from streamlake.table.updates.metadata_update import commit_metadata
from streamlake.write.upsert.truncation import TruncatePosition

_LOG = logging.getLogger(__name__)

LastTruncate = Callable[[], tuple[int | None, TruncatePosition | None]]
"""Gives the branch's head that the table shows (None: there is no snapshot), and the source position of the
last truncate up to there, as the next checkpoint would apply it."""


def no_truncate() -> tuple[None, None]:
    """The LastTruncate of tables that nobody truncates."""
    return None, None


def truncate_known_by(indexed: Indexed) -> tuple[int | None, TruncatePosition | None]:
    """The head of a key index, and the source position of the last truncate that the index knows."""
    return indexed.snapshot_id, indexed.state.truncated_below


def sources_of(table: Table) -> dict[str, str]:
    """The source table of each topic's changes, {topic: source table}, as far as it is known. Raises
    DataInvalidError.
    """
    return kept_sources(table.metadata.properties, table.location)


def asked_sources(errors: Iterable[StreamlakeError]) -> dict[str, str]:
    """The source tables that tasks ask to record, {topic: table}. Other errors of the tasks come again once
    this is done: each request is for another topic.
    """
    found: dict[str, str] = {}
    for error in errors:
        if isinstance(error, NewSourceError):
            found = with_source(found, error.topic, error.table)
    return found


def keep_sources(
    table: Table,
    found: Mapping[str, str],
    branch: str = MAIN_BRANCH,
    last_truncate: LastTruncate = no_truncate,
) -> None:
    """Record the source tables of topics that have none yet.

    Raises InvalidOptionError where the table was truncated in the one source table that it had until now, and
    the errors of a commit.
    """
    retry = RetryOptions.for_commit(table.properties)
    for topic, name in found.items():
        deadline = clock.monotonic() + retry.total_timeout_ms / 1000
        while True:
            try:
                _keep(table, topic, name, branch, last_truncate)
                break
            except HeadMovedError:
                if clock.monotonic() > deadline:
                    raise


def _keep(table: Table, topic: str, name: str, branch: str, last_truncate: LastTruncate) -> None:
    """Record the source table of one topic. Raises HeadMovedError where others have committed since the last
    truncate was looked for: a truncate may be among their commits.
    """
    table.refresh()
    head: int | None = None
    is_judged = bool(_others(table.metadata, topic, name)) and last_truncate is not no_truncate
    if is_judged:
        head, mark = last_truncate()
        _require_no_truncate(table, topic, name, mark)

    def change(base: TableMetadata) -> TableMetadata:
        known = kept_sources(base.properties, table.location)
        kept = with_source(known, topic, name)
        if kept == known:
            return base
        snapshot = branch_head(base, branch)
        found = None if snapshot is None else snapshot.snapshot_id
        is_due = last_truncate is not no_truncate and bool(_others(base, topic, name))
        if is_due and (not is_judged or found != head):
            raise HeadMovedError(
                f"{table.location}: others commit while the source of the topic {topic} is noted", head, found
            )
        return with_properties(base, {PROPERTY: json.dumps(kept, sort_keys=True, ensure_ascii=False)})

    before = sources_of(table)
    commit_metadata(table, change)
    if sources_of(table) != before:
        _LOG.info(
            "%s: changes of the topic %s are of the table %s", table.location, topic, name or "(none named)"
        )


def _others(metadata: TableMetadata, topic: str, name: str) -> set[str]:
    """The source tables of other topics of the table that are not `name`."""
    known = kept_sources(metadata.properties, metadata.location)
    return {each for other, each in known.items() if other != topic and each != name}


def _require_no_truncate(table: Table, topic: str, name: str, mark: TruncatePosition | None) -> None:
    if mark is not None:
        others = ", ".join(
            sorted(each or "a source without a name" for each in _others(table.metadata, topic, name))
        )
        raise InvalidOptionError(
            f"{table.location}: changes of the topic {topic}, of the table '{name}', come to the rows of "
            f"{others}, which was truncated at {mark!r} of its log: what is older is late, and the logs of "
            "the two cannot be compared. Give the topic a table of its own, or forget the truncate with "
            "`streamlake index rebuild` and start again"
        )
