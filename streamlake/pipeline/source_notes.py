"""Which source table the changes of each topic are of, kept with the table that they go into, on the driver.

Place in the flow: a task that reads the first changes of a topic asks for it, see `source_tables`, and reads again once it is kept.
Invariant: it is kept before a row of the topic is written, so that truncates and positions of one source never count for rows of
another, whichever pipelines and topics write the table.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterable, Mapping

from streamlake import clock
from streamlake.decode.source_tables import PROPERTY, kept_sources, with_source
from streamlake.errors import HeadMovedError, InvalidOptionError, NewSourceError, StreamlakeError
from streamlake.pipeline.indexed import Indexed
from streamlake.spec.snapshot import MAIN_BRANCH
from streamlake.spec.table_metadata import TableMetadata
from streamlake.table.metadata_changes import branch_head, with_properties
from streamlake.table.metadata_update import commit_metadata
from streamlake.table.options import RetryOptions
from streamlake.table.table import Table
from streamlake.write.truncation import Mark

_LOG = logging.getLogger(__name__)

LastTruncate = Callable[[], tuple[int | None, Mark | None]]
"""Gives the branch's head as the table shows it (None: there is no snapshot), and the place of the last truncate up to there in
its database's log, as the next checkpoint would heed it."""


def no_truncate() -> tuple[None, None]:
    """For tables that nobody truncates."""
    return None, None


def truncate_known_by(indexed: Indexed) -> tuple[int | None, Mark | None]:
    """The same by the key index of that head."""
    return indexed.snapshot_id, indexed.state.truncated_below


def sources_of(table: Table) -> dict[str, str]:
    """{topic: the source table of its changes} as far as it is known. Raises DataInvalidError."""
    return kept_sources(table.metadata.properties, table.location)


def asked_sources(errors: Iterable[StreamlakeError]) -> dict[str, str]:
    """{topic: table} that tasks ask to keep. What ended other tasks will end them again, once this is answered: each answer is of
    another topic."""
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
    """Keep what is found of topics that nothing was known of.

    Raises InvalidOptionError where the table was truncated in the one source that it had until now, and the errors of a commit.
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
    """The same for one topic. Raises HeadMovedError where others have committed since the last truncate was looked for: one of
    their own may be among that."""
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
    """The sources in the table that are not this one."""
    known = kept_sources(metadata.properties, metadata.location)
    return {each for other, each in known.items() if other != topic and each != name}


def _require_no_truncate(table: Table, topic: str, name: str, mark: Mark | None) -> None:
    if mark is not None:
        others = ", ".join(
            sorted(each or "a source without a name" for each in _others(table.metadata, topic, name))
        )
        raise InvalidOptionError(
            f"{table.location}: changes of the topic {topic}, of the table '{name}', come to the rows of {others}, which was "
            f"truncated at {mark!r} of its log: what is older is late, and the logs of the two cannot be compared. Give the topic a "
            "table of its own, or forget the truncate with `streamlake index rebuild` and start again"
        )
