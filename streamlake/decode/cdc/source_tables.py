"""Source tables: the database tables whose changes a decoder takes.

Envelopes name the table of a change. A topic belongs to one table unless the option `source-tables` names
several: the first table that its rows name or, where no row names one, its deletes. The table that they go
into records it, and records of another table are rejects. Records that are rejects themselves, and truncates,
do not decide the topic's table. With the option, records of other tables than the named ones are skipped and
counted.

Invariant: where a topic's table is known, no change of another table becomes a row or deletes one. Where it
is not known, no truncate is applied.

A name is "database.table" or "database.schema.table", after the name of the server ("server/") where the
envelope has one: two servers may have tables of the same name, and positions in their logs cannot be
compared. The first "/" ends the server's name, which itself has none; a table with a "/" in its name starts
with one where no server is named. Upper and lower case differ. Dots inside a name are not distinguished from
those between names.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

import numpy as np
import pyarrow as pa

from streamlake.decode.json.json_values import FieldError
from streamlake.decode.values.envelope import Array
from streamlake.errors import DataInvalidError
from streamlake.options import Property

OPTION = "source-tables"
PROPERTY = "streamlake.source-tables"
"""The table property that stores {topic: the table that its records are of}, "" where they name none."""
PROPERTIES = (
    Property(
        PROPERTY,
        "",
        "Written by streamlake: the source table of each topic, as JSON. Take a topic out when its table "
        "was renamed.",
    ),
)
OTHER_TABLE = "change of another table"
EVENT_PARTS = ("db", "schema", "table", "collection")
"""The fields of "source" that name the table, beside the server's "name"."""
_WILDCARDS = frozenset("*?[")


@dataclass(frozen=True)
class SourceTables:
    """Which tables' changes a topic may carry, and what is recorded of it.

    `wanted`: names, perhaps with wildcards (none: the one table that the topic belongs to). `known`: what
    earlier records of the topic named, "" for nothing. `truncates`: whether a truncate may be applied,
    because no rows of another source are in the table. `kept`: whether the topic's table is recorded at all.
    `noted`: whether earlier rows of the topic came, of a known table or not.
    """

    wanted: tuple[str, ...] = ()
    known: str = ""
    truncates: bool = True
    kept: bool = False
    noted: bool = False

    @property
    def is_one(self) -> bool:
        """Whether all accepted records are of one table."""
        return len(self.wanted) < 2 and not any(_WILDCARDS & set(name) for name in self.wanted)

    def of_topic(
        self, topic: str, sources: Mapping[str, str] | None, others: Iterable[str] = ()
    ) -> SourceTables:
        """These tables with the recorded `sources` of the target table's topics (None: none are recorded).

        `others` are further topics that go into the table, whether anything is known of them or not.
        """
        if sources is None:
            return SourceTables(self.wanted, truncates=self.is_one)
        together = {
            name or f"topic {other}"
            for other, name in {**dict.fromkeys((topic, *others), ""), **sources}.items()
        }
        return SourceTables(
            self.wanted,
            sources.get(topic, ""),
            self.is_one and len(together) == 1,
            kept=True,
            noted=topic in sources,
        )


class TableCheck:
    """Checks the records of one topic against SourceTables, as one task reads them."""

    def __init__(self, tables: SourceTables | None = None) -> None:
        self.tables = tables or SourceTables()
        self.seen: str | None = None
        """The table of the rows so far, "" where they name none; None: there were no rows."""
        self._deleted = ""
        self._first = self.tables.known

    @property
    def is_filter(self) -> bool:
        """Whether the option `source-tables` selects tables."""
        return bool(self.tables.wanted)

    def takes(self, name: str) -> bool:
        """Whether a change of this table is wanted.

        Raises FieldError for a change that must not be in the topic.
        """
        if name and not self._is_wanted(name):
            return False
        if self._is_unclear(name):
            raise FieldError(
                f"it does not say which table it is a change of, and the source's option {OPTION} names the "
                "wanted ones: let the producer write the table (add.fields of ExtractNewRecordState), or "
                "leave the option out where the topic has one table"
            )
        if self._is_foreign(name, self._first):
            raise FieldError(
                f"it is a change of the table '{name}', and those of this topic before were of "
                f"'{self._first}': name the tables that are wanted in the source's option {OPTION}; where "
                f"the table was renamed, take the topic out of the table property {PROPERTY}"
            )
        return True

    def empties(self, name: str) -> bool:
        """Whether a truncate of this table is wanted.

        Raises FieldError where it must not be in the topic, and where no row has named the topic's table yet.
        """
        if not self.takes(name):
            return False
        is_said = self._first or (not name and (self.tables.noted or self.seen is not None))
        if self.tables.kept and self.tables.is_one and not is_said:
            raise FieldError(
                f"it is a truncate of the table '{name}', and no row of this topic has said yet which table "
                f"the topic is of: if it is this one, name it in the table property {PROPERTY}; else drop "
                "the record (on_error='reject')"
            )
        return True

    def foreign(self, names: pa.StringArray, rows: Array) -> Array:
        """(n,) bool: changes that `takes` refuses, by table name, once those at `rows` (n,) bool came."""
        found = names.dictionary_encode()
        known = [*(text or "" for text in found.dictionary.to_pylist()), ""]
        codes: Array = found.indices.fill_null(len(known) - 1).to_numpy(zero_copy_only=False)
        first = self._first or self._first_of(names.filter(pa.array(rows)))
        wrong: Array = np.zeros(len(known), dtype=bool)
        for code, name in enumerate(known):
            wrong[code] = bool(name and not self._is_wanted(name)) or self._is_unclear(name)
            wrong[code] |= self._is_foreign(name, first)
            if name and first and not wrong[code]:
                first = max(name, first, key=len)
        return wrong[codes]

    def came(self, names: pa.StringArray) -> None:
        """Notes rows of these tables, for which `takes` is true; they decide the topic's table."""
        if len(names):
            for name in names.dictionary_encode().dictionary.to_pylist() or [""]:
                self.came_one(name or "")

    def came_one(self, name: str) -> None:
        """Notes one row, as `came` does for many."""
        self.seen = self.seen or ""
        if name and self.tables.is_one:
            self._first = self.seen = max(name, self._first, key=len)

    @property
    def said(self) -> str | None:
        """The topic's table by the records so far, "" where rows name none; None: no record decides it.

        Rows count before deletes, because a key alone fits any table.
        """
        return self.seen or self._deleted or self.seen

    def went(self, names: pa.StringArray) -> None:
        """Notes deletes of these tables, for which `takes` is true."""
        if len(names) and not self._deleted:
            for name in names.dictionary_encode().dictionary.to_pylist():
                self.went_one(name or "")

    def went_one(self, name: str) -> None:
        """Notes one delete, as `went` does for many."""
        if self.tables.is_one:
            self._deleted = self._deleted or name

    def counted(self, names: pa.StringArray) -> dict[str, int]:
        """Table -> number of records that name it."""
        counts = names.drop_null().value_counts()
        found = zip(counts.field("values").to_pylist(), counts.field("counts").to_pylist(), strict=True)
        return {name: count for name, count in found if name}

    def unwanted(self, names: pa.StringArray) -> Array:
        """(n,) bool: the records to skip."""
        found = names.dictionary_encode()
        known = [*(bool(text) and not self._is_wanted(text) for text in found.dictionary.to_pylist()), False]
        passed: Array = np.array(known)[
            found.indices.fill_null(len(known) - 1).to_numpy(zero_copy_only=False)
        ]
        return passed

    def _is_wanted(self, name: str) -> bool:
        return not self.tables.wanted or is_wanted(name, self.tables.wanted)

    def _is_unclear(self, name: str) -> bool:
        """Whether the change may be of a table that is not wanted, because it names none."""
        return self.is_filter and not name

    def _is_foreign(self, name: str, first: str) -> bool:
        """Whether it is another table than the first one."""
        return bool(name and first and self.tables.is_one) and not is_same_table(name, first)

    def _first_of(self, names: pa.StringArray) -> str:
        """The first of these names that is wanted, "" where there is none."""
        found = names.dictionary_encode().dictionary.to_pylist() if self.tables.is_one else ()
        return next((name for name in found if name and self._is_wanted(name)), "")


def is_same_table(one: str, other: str) -> bool:
    """Whether two names are of one table; a server that one of them does not name may be any."""
    (server, table), (its, same) = _parts(one), _parts(other)
    return table == same and (not server or not its or server == its)


def is_wanted(name: str, wanted: Iterable[str]) -> bool:
    """Whether a table is among `wanted`; a pattern with a "/" is compared with the server's name, too."""
    table = table_of_name(name)
    return any(fnmatchcase(table, each) or ("/" in each and fnmatchcase(name, each)) for each in wanted)


def table_of_name(name: str) -> str:
    """The table's name without the server."""
    return _parts(name)[1]


def _parts(name: str) -> tuple[str, str]:
    """The names of the server ("" where there is none) and of the table."""
    server, slash, table = name.partition("/")
    return (server, table) if slash else ("", name)


def event_name(source: Mapping[str, object]) -> str:
    """The table's name from the "source" of a Debezium event."""
    return joined_name(source.get("name"), [source.get(part) for part in EVENT_PARTS])


def unwrapped_name(row: Mapping[str, object]) -> str:
    """The table's name from an event after ExtractNewRecordState, where `add.fields` adds it."""
    return event_name(
        {part: row.get(f"__source_{part}", row.get(f"__{part}")) for part in ("name", *EVENT_PARTS)}
    )


def joined_names(server: pa.Array | None, parts: Sequence[pa.Array]) -> pa.StringArray:
    """(n,) table names from (n,) texts each; empty where a change names none."""
    columns = [*([] if server is None else [server]), *parts]
    encoded = [column.dictionary_encode() for column in columns]
    codes: Array = np.zeros(len(columns[0]), dtype=np.int64)
    members: list[tuple[str | None, ...]] = [()]
    for column in encoded:
        texts = [*column.dictionary.to_pylist(), None]
        each = column.indices.fill_null(len(texts) - 1).to_numpy(zero_copy_only=False)
        distinct, codes = np.unique(codes * len(texts) + each, return_inverse=True)
        pairs = [divmod(code, len(texts)) for code in distinct.tolist()]
        members = [(*members[before], texts[at]) for before, at in pairs]
    start = 0 if server is None else 1
    names = [joined_name(each[0] if start else None, each[start:]) for each in members]
    return pa.DictionaryArray.from_arrays(
        pa.array(codes.astype(np.int32)), pa.array(names, pa.string())
    ).cast(pa.string())


def joined_name(server: object, parts: Sequence[object]) -> str:
    """The name of one table; parts that are not text are ignored."""
    table = ".".join(part for part in parts if isinstance(part, str) and part)
    if table and isinstance(server, str) and server:
        return f"{server}/{table}"
    return f"/{table}" if "/" in table else table


def kept_sources(properties: Mapping[str, str], table: str) -> dict[str, str]:
    """{topic: its table} from a table's properties. Raises DataInvalidError."""
    text = properties.get(PROPERTY)
    try:
        found = {} if text is None else json.loads(text)
        return {str(topic): str(name) for topic, name in found.items()}
    except (ValueError, AttributeError) as error:
        raise DataInvalidError(
            f"{table}: the table property {PROPERTY} is damaged ({error}): it names the source table of "
            f"each topic, as in "
            '{"shop.public.orders": "shop/shop.public.orders"}; correct it, or remove it: the next '
            "records set it again"
        ) from error


def with_source(sources: Mapping[str, str], topic: str, name: str) -> dict[str, str]:
    """`sources` with the table that records of a topic name, where nothing is recorded of the topic yet."""
    return {**sources, topic: sources.get(topic) or name}
