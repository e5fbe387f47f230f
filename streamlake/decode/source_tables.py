"""Source tables: which tables of which databases a decoder takes changes of.

Envelopes name the table of a change. A topic is of one table unless the option `source-tables` names several: the first one that
its rows name, where there are none its deletes, is kept with the table that they go into, and records of another one are rejects. What
is a reject itself and a truncate say nothing of the topic's table. With the option records of other tables than it names are passed over and counted.
Invariant: where a topic's table is known, no change of another table becomes a row, or deletes one; where it is not, no truncate counts.

A name is "database.table" or "database.schema.table", behind the name of the server ("server/") where the envelope has one: two
servers may have tables of one name, and positions in their logs cannot be compared. The first "/" ends the server's name, which has
none itself; a table with one in its name has one in front where no server is named. Letters count as they are, and dots in a
name are not told from those between names.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

import numpy as np
import pyarrow as pa

from streamlake.decode.envelope import Array
from streamlake.decode.json_values import FieldError
from streamlake.errors import DataInvalidError

OPTION = "source-tables"
PROPERTY = "streamlake.source-tables"
"""The table property that keeps {topic: the table that its records are of}, "" where they name none."""
OTHER_TABLE = "change of another table"
EVENT_PARTS = ("db", "schema", "table", "collection")
"""What "source" says of the table, beside the "name" of the server."""
_WILDCARDS = frozenset("*?[")


@dataclass(frozen=True)
class SourceTables:
    """`wanted`: names, perhaps with wildcards (none: the one table that the topic has). `known`: what records of the topic named
    before, "" for nothing. `truncates`: whether a truncate may be carried out, as rows of no other source are in the table. `kept`:
    whether the table that goes with a topic is kept at all, `noted`: whether rows of the topic came before, of a known table or not."""

    wanted: tuple[str, ...] = ()
    known: str = ""
    truncates: bool = True
    kept: bool = False
    noted: bool = False

    @property
    def is_one(self) -> bool:
        """Whether the records taken are all of one table."""
        return len(self.wanted) < 2 and not any(_WILDCARDS & set(name) for name in self.wanted)

    def of_topic(
        self, topic: str, sources: Mapping[str, str] | None, others: Iterable[str] = ()
    ) -> SourceTables:
        """The same with what is kept of all topics of the table; None: nothing is. `others` go into it too, whether anything is known
        of them or not."""
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
    """Applies it to the records of one topic, as one task reads them."""

    def __init__(self, tables: SourceTables | None = None) -> None:
        self.tables = tables or SourceTables()
        self.seen: str | None = None
        """The table of the rows so far, "" where they name none; None: there were no rows."""
        self._deleted = ""
        self._first = self.tables.known

    @property
    def is_filter(self) -> bool:
        return bool(self.tables.wanted)

    def takes(self, name: str) -> bool:
        """Whether a change of this table is wanted. Raises FieldError for one that must not be there."""
        if name and not self._is_wanted(name):
            return False
        if self._is_unclear(name):
            raise FieldError(
                f"it does not say which table it is a change of, and the source's option {OPTION} names the wanted ones: let the "
                "producer write the table (add.fields of ExtractNewRecordState), or leave the option out where the topic has one table"
            )
        if self._is_foreign(name, self._first):
            raise FieldError(
                f"it is a change of the table '{name}', and those of this topic before were of '{self._first}': name the tables "
                f"that are wanted in the source's option {OPTION}; where the table was renamed, take the topic out of the table "
                f"property {PROPERTY}"
            )
        return True

    def empties(self, name: str) -> bool:
        """Whether a truncate of this table is wanted. Raises FieldError where it must not be there, and where no row has said which
        table the topic is of."""
        if not self.takes(name):
            return False
        is_said = self._first or (not name and (self.tables.noted or self.seen is not None))
        if self.tables.kept and self.tables.is_one and not is_said:
            raise FieldError(
                f"it is a truncate of the table '{name}', and no row of this topic has said yet which table the topic is of: "
                f"where it is this one, name it in the table property {PROPERTY}; else drop the record (on_error='reject')"
            )
        return True

    def foreign(self, names: pa.StringArray, rows: Array) -> Array:
        """(n,) bool: changes for which `takes` is not true, by the names of their tables, once those at `rows` (n,) bool are rows."""
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
        """Rows came in, of tables of these names, for which `takes` is true: they say which table the topic is of."""
        if len(names):
            for name in names.dictionary_encode().dictionary.to_pylist() or [""]:
                self.came_one(name or "")

    def came_one(self, name: str) -> None:
        """The same for one record."""
        self.seen = self.seen or ""
        if name and self.tables.is_one:
            self._first = self.seen = max(name, self._first, key=len)

    @property
    def said(self) -> str | None:
        """The table that the topic is of by what came so far, "" where rows name none; None: nothing came that says it. Rows count
        before deletes: a key alone fits any table."""
        return self.seen or self._deleted or self.seen

    def went(self, names: pa.StringArray) -> None:
        """Deletes came, of tables of these names, for which `takes` is true."""
        if len(names) and not self._deleted:
            for name in names.dictionary_encode().dictionary.to_pylist():
                self.went_one(name or "")

    def went_one(self, name: str) -> None:
        """The same for one record."""
        if self.tables.is_one:
            self._deleted = self._deleted or name

    def counted(self, names: pa.StringArray) -> dict[str, int]:
        """Table -> how many records name it, where only those of some are taken; none elsewhere."""
        counts = names.drop_null().value_counts()
        found = zip(counts.field("values").to_pylist(), counts.field("counts").to_pylist(), strict=True)
        return {name: count for name, count in found if name}

    def unwanted(self, names: pa.StringArray) -> Array:
        """(n,) bool: those that are passed over."""
        found = names.dictionary_encode()
        known = [*(bool(text) and not self._is_wanted(text) for text in found.dictionary.to_pylist()), False]
        passed: Array = np.array(known)[
            found.indices.fill_null(len(known) - 1).to_numpy(zero_copy_only=False)
        ]
        return passed

    def _is_wanted(self, name: str) -> bool:
        return not self.tables.wanted or is_wanted(name, self.tables.wanted)

    def _is_unclear(self, name: str) -> bool:
        """Whether it may be a table that is not wanted."""
        return self.is_filter and not name

    def _is_foreign(self, name: str, first: str) -> bool:
        """Whether it is another table than the first one."""
        return bool(name and first and self.tables.is_one) and not is_same_table(name, first)

    def _first_of(self, names: pa.StringArray) -> str:
        """The first of them that is wanted, "" where there is none."""
        found = names.dictionary_encode().dictionary.to_pylist() if self.tables.is_one else ()
        return next((name for name in found if name and self._is_wanted(name)), "")


def is_same_table(one: str, other: str) -> bool:
    """Whether two names are of one table; a server that one of them does not name may be any."""
    (server, table), (its, same) = _parts(one), _parts(other)
    return table == same and (not server or not its or server == its)


def is_wanted(name: str, wanted: Iterable[str]) -> bool:
    """Whether a table is one of those; only a pattern with a "/" is compared with the server's name, too."""
    table = table_of_name(name)
    return any(fnmatchcase(table, each) or ("/" in each and fnmatchcase(name, each)) for each in wanted)


def table_of_name(name: str) -> str:
    """The name without the server's."""
    return _parts(name)[1]


def _parts(name: str) -> tuple[str, str]:
    """The names of the server, "" where there is none, and of the table."""
    server, slash, table = name.partition("/")
    return (server, table) if slash else ("", name)


def event_name(source: Mapping[str, object]) -> str:
    """The name of the table that the "source" of an event of Debezium names."""
    return joined_name(source.get("name"), [source.get(part) for part in EVENT_PARTS])


def unwrapped_name(row: Mapping[str, object]) -> str:
    """The same for an event after ExtractNewRecordState, where `add.fields` brings it."""
    return event_name(
        {part: row.get(f"__source_{part}", row.get(f"__{part}")) for part in ("name", *EVENT_PARTS)}
    )


def joined_names(server: pa.Array | None, parts: Sequence[pa.Array]) -> pa.StringArray:
    """(n,) names of tables from (n,) texts each; empty where a change names none."""
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
    """The name of one table; what is no text counts for nothing."""
    table = ".".join(part for part in parts if isinstance(part, str) and part)
    if table and isinstance(server, str) and server:
        return f"{server}/{table}"
    return f"/{table}" if "/" in table else table


def kept_sources(properties: Mapping[str, str], table: str) -> dict[str, str]:
    """{topic: its table} as the properties of a table have it. Raises DataInvalidError."""
    text = properties.get(PROPERTY)
    try:
        found = {} if text is None else json.loads(text)
        return {str(topic): str(name) for topic, name in found.items()}
    except (ValueError, AttributeError) as error:
        raise DataInvalidError(
            f"{table}: the table property {PROPERTY} is damaged ({error}): it names the source table of each topic, as in "
            '{"shop.public.orders": "shop/shop.public.orders"}; mend it, or remove it, and the next records say it anew'
        ) from error


def with_source(sources: Mapping[str, str], topic: str, name: str) -> dict[str, str]:
    """The same with what records of a topic name, where nothing is known of it yet."""
    return {**sources, topic: sources.get(topic) or name}
