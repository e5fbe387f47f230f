"""Table names from templates: placeholders are filled from the topic's name and from rows.

The driver fills what the topic names. What only rows name ({row.country}, {route}) is left in, and the tasks
fill it, see `row_names`. All topics that give the same text up to there are one stream of rows, which is
split by these placeholders.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from streamlake.errors import InvalidOptionError
from streamlake.options import suggestion

PLACEHOLDER = re.compile(r"\{([^{}]*)\}")
TOPIC = "topic"
ROUTE = "route"
ROW = "row."
UPWARDS = re.compile(r"(^|/)\.\.?(/|$)")
"""A part of a location that is not the name of a directory, but leads to another one."""
REJECTS_ENDING = "__rejects"
"""The ending of names of rejects tables; no row may name one."""


def is_template(table: str) -> bool:
    """Whether a table's name has placeholders, so that it stands for many tables."""
    return PLACEHOLDER.search(table) is not None


def row_placeholders(table: str) -> tuple[str, ...]:
    """The placeholders of a template that rows fill, in their order, each once."""
    found = [name for name in PLACEHOLDER.findall(table) if name == ROUTE or name.startswith(ROW)]
    return tuple(dict.fromkeys(found))


class TableNames:
    r"""A template for the names of tables.

    `template` is a table's location or name with `{topic}`, or with the named groups of `topic_pattern`:
    "lake.{table}" for "shop\.public\.(?P<table>.+)". It may also have fields of rows, `{row.country}`, or
    `{route}` for the result of a function (`has_route`). Raises InvalidOptionError for any other placeholder.
    """

    def __init__(self, template: str, topic_pattern: str | None, *, has_route: bool = False) -> None:
        self._template = template
        self._pattern = None if topic_pattern is None else re.compile(topic_pattern)
        known = [TOPIC, *(() if self._pattern is None else self._pattern.groupindex)]
        known += [ROUTE] if has_route else []
        for name in PLACEHOLDER.findall(template):
            if name == ROUTE and not has_route:
                raise InvalidOptionError(
                    f"the table '{template}' has the placeholder '{{{ROUTE}}}', and no function is given "
                    "that says what it is; give one as route"
                )
            if name not in known and (not name.startswith(ROW) or name == ROW):
                near = suggestion(name, known)
                hint = f"did you mean '{near}'?" if near else f"there is {', '.join(known)}"
                raise InvalidOptionError(
                    f"the table '{template}' has the placeholder '{{{name}}}', which neither is 'topic' nor "
                    f"a named group (?P<{name}>...) of the topic pattern; {hint}. A field of the row is "
                    f"'{{row.{name or 'name'}}}'"
                )

    @property
    def by_row(self) -> bool:
        """Whether the topic alone does not determine the table."""
        return bool(row_placeholders(self._template))

    def may_be(self, table: str) -> bool:
        """Whether some topic, which may be still to come, could give a table of this name."""
        literal = PLACEHOLDER.split(self._template)[::2]
        return re.fullmatch(".+".join(map(re.escape, literal)), table, re.DOTALL) is not None

    def of(self, topic: str) -> str:
        """The table of a topic, with the placeholders left in that rows fill.

        Raises InvalidOptionError where a part of the name is empty, leads to another directory, or makes the
        name of another table's rejects.
        """
        found = None if self._pattern is None else self._pattern.fullmatch(topic)
        parts: Mapping[str, str | None] = {TOPIC: topic, **({} if found is None else found.groupdict())}

        def filled(placeholder: re.Match[str]) -> str:
            name = placeholder[1]
            if name not in parts:
                return placeholder[0]
            part = parts[name]
            if not part:
                raise InvalidOptionError(
                    f"the topic '{topic}' gives no table: the group '{name}' of the topic pattern is empty "
                    "there"
                )
            return part

        table = PLACEHOLDER.sub(filled, self._template)
        for part in self._template.split("/"):
            # What the template itself contains is the user's own choice.
            if PLACEHOLDER.search(part) and UPWARDS.search(PLACEHOLDER.sub(filled, part)):
                raise InvalidOptionError(
                    f"the topic '{topic}' gives the table '{table}', whose directory is another one's; leave "
                    "the topic out with the topic pattern, or write the table's name so that something "
                    "stands before it"
                )
        if table.rstrip("/").endswith(REJECTS_ENDING) and not self._template.rstrip("/").endswith(
            REJECTS_ENDING
        ):
            raise InvalidOptionError(
                f"the topic '{topic}' gives the table '{table}', and names that end with {REJECTS_ENDING} "
                "are those of the rejects of another table; leave the topic out with the topic pattern, or "
                "write another ending behind it"
            )
        return table


def unused_settings(name: str, known: Sequence[str]) -> str:
    """What is wrong with settings for a table that is none of the `known` ones, with the nearest of these."""
    folded = {each.rpartition(".")[2].rpartition("/")[2]: each for each in known}
    near = folded.get(name) or suggestion(name, known) or folded.get(suggestion(name, folded), "")
    tables = f"the tables are {', '.join(known)}" if known else "there is no topic yet"
    hint = f"did you mean '{near}'?" if near else tables
    return f"tables has '{name}', which is the table of no topic; {hint}"
