"""The filter `source-tables`: a count of skipped records, and a warning for names that match no record.

Place in the flow: on the driver. Tasks report which tables the records name; this counts them, once for each
micro-batch of a table or of routed topics. Invariant: a name that matches no record, where records of other
tables come, is warned of once.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence

from streamlake.commit.receipt import (
    OTHER_TABLE_RECORDS,
    OTHER_TABLES_COUNTER,
    TOMBSTONES,
    TOMBSTONES_COUNTER,
)
from streamlake.decode.cdc.source_tables import OPTION, is_wanted, table_of_name
from streamlake.options import suggestion

_LOG = logging.getLogger(__name__)
_SHOWN = 5


class FilteredTables:
    """The filter in one run of a query."""

    def __init__(self) -> None:
        self._met: set[str] = set()
        self._warned: set[str] = set()

    def see(self, wanted: Sequence[str], named: Mapping[str, int], known: Iterable[str], where: str) -> int:
        """The number of skipped records in a micro-batch whose records name the tables in `named`, with the
        number of records for each. `known` are tables whose rows came before. Warns of a wanted name that
        matches nothing; `where` names the target of the rows in the warning.
        """
        met = [name for name in (*named, *known) if name]
        self._met.update(each for each in wanted if any(is_wanted(name, (each,)) for name in met))
        for each, text in unmet(wanted, named, self._met | self._warned).items():
            _LOG.warning("%s: %s", where, text)
            self._warned.add(each)
        return sum(count for name, count in named.items() if not is_wanted(name, wanted))


def skipped_summary(passed_over: int, nulls: int) -> dict[str, str]:
    """The entries in the snapshot's summary for records that were skipped, and for those without a value."""
    found = {OTHER_TABLE_RECORDS: passed_over, TOMBSTONES: nulls}
    return {name: str(count) for name, count in found.items() if count}


def skipped_counters(summary: Mapping[str, str]) -> dict[str, int]:
    """The counters of a receipt, from the entries in a snapshot's summary."""
    names = {OTHER_TABLE_RECORDS: OTHER_TABLES_COUNTER, TOMBSTONES: TOMBSTONES_COUNTER}
    return {counter: int(summary[name]) for name, counter in names.items() if name in summary}


def unmet(wanted: Sequence[str], named: Mapping[str, int], met: Iterable[str] = ()) -> dict[str, str]:
    """The warnings, by name, for those of the wanted names that no record matches, where there are records of
    tables that nobody wants. Names in `met` are left out.
    """
    others = [name for name in named if not is_wanted(name, wanted)]
    if not others:
        return {}
    past = set(met)
    found = {}
    for each in wanted:
        if each in past or any(is_wanted(name, (each,)) for name in named):
            continue
        near = suggestion(each, [table_of_name(name) for name in others])
        shown = ", ".join(sorted(others)[:_SHOWN])
        more = f" and {len(others) - _SHOWN} more" if len(others) > _SHOWN else ""
        found[each] = (
            f"no record is of the table '{each}', which the "
            f"source's option {OPTION} names; those that "
            f"came are of {shown}{more} and are passed over" + (f"; did you mean '{near}'?" if near else "")
        )
    return found
