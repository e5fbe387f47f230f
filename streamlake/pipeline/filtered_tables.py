"""What the option `source-tables` leaves out, on the driver: how many records, and which of its names have met nothing yet.

Place in the flow: tasks tell which tables records name; this counts them, once for each micro-batch of a table or a family.
Invariant: a name that meets no record, where records of other tables come, is told of once.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence

from streamlake.commit.receipt import OTHER_TABLE_RECORDS
from streamlake.decode.source_tables import OPTION, is_wanted, table_of_name
from streamlake.options import suggestion

_LOG = logging.getLogger(__name__)
_SHOWN = 5


class FilteredTables:
    """Of one run of a query. `count` is how many records of the last micro-batch were passed over."""

    def __init__(self) -> None:
        self.count = 0
        self._met: set[str] = set()
        self._told: set[str] = set()

    def see(self, wanted: Sequence[str], named: Mapping[str, int], known: Iterable[str], where: str) -> None:
        """Tables were `named` so often by the records of a micro-batch. `known` are tables whose rows came before. Warns of a name that
        met nothing, `where` being what the rows are for."""
        met = [name for name in (*named, *known) if name]
        self._met.update(each for each in wanted if any(is_wanted(name, (each,)) for name in met))
        for each, text in unmet(wanted, named, self._met | self._told).items():
            _LOG.warning("%s: %s", where, text)
            self._told.add(each)
        self.count = sum(count for name, count in named.items() if not is_wanted(name, wanted))

    def summary(self) -> dict[str, str]:
        """The entry in the snapshot's summary; none where nothing was passed over."""
        return {OTHER_TABLE_RECORDS: str(self.count)} if self.count else {}


def unmet(wanted: Sequence[str], named: Mapping[str, int], met: Iterable[str] = ()) -> dict[str, str]:
    """Name -> what to say of it, for those of the wanted ones that no record names, where there are records of tables that nobody
    wants. `met` are not looked at."""
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
            f"no record is of the table '{each}', which the source's option {OPTION} names; those that came are of {shown}{more} and "
            f"are passed over" + (f"; did you mean '{near}'?" if near else "")
        )
    return found
