"""Which source table the changes of each topic are of, kept with the table that they go into, on the driver.

Place in the flow: a task that reads the first changes of a topic asks for it, see `source_tables`, and reads again once it is kept.
Invariant: it is kept before a row of the topic is written, so that truncates and positions of one source never count for rows of
another, whichever pipelines and topics write the table.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Mapping

from streamlake.decode.source_tables import PROPERTY, kept_sources, with_source
from streamlake.errors import InvalidOptionError, NewSourceError, StreamlakeError
from streamlake.spec.table_metadata import TableMetadata
from streamlake.table.metadata_changes import with_properties
from streamlake.table.metadata_update import commit_metadata
from streamlake.table.table import Table
from streamlake.write.truncation import Mark

_LOG = logging.getLogger(__name__)


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


def keep_sources(table: Table, found: Mapping[str, str], truncated_below: Mark | None) -> None:
    """Keep what is found of topics that nothing was known of. `truncated_below`: see IndexState.

    Raises InvalidOptionError where the table was truncated in the one source that it had until now, and the errors of a commit.
    """
    for topic, name in found.items():
        known = sources_of(table)
        others = {each for other, each in known.items() if other != topic and each != name}
        if truncated_below is not None and others:
            raise InvalidOptionError(
                f"{table.location}: changes of the topic {topic}, of the table '{name}', come to the rows of "
                f"{', '.join(sorted(others))}, which was truncated at {truncated_below!r} of its log: what is older is late, and the "
                "logs of the two cannot be compared. Give the topic a table of its own, or forget the truncate with `streamlake "
                "index rebuild` and start again"
            )

        def change(base: TableMetadata, topic: str = topic, name: str = name) -> TableMetadata:
            kept = with_source(kept_sources(base.properties, table.location), topic, name)
            text = json.dumps(kept, sort_keys=True, ensure_ascii=False)
            return with_properties(base, {PROPERTY: text})

        commit_metadata(table, change)
        _LOG.info(
            "%s: changes of the topic %s are of the table %s", table.location, topic, name or "(none named)"
        )
