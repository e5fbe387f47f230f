"""Which table a record goes into: a template whose placeholders are filled from the topic's name, and from its row.

The driver fills what the topic tells. What only rows tell ({row.country}, {route}) is left in, and the tasks fill it, see
`row_names`; all topics that give the same text up to there are one stream of rows that is parted by them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from streamlake.errors import InvalidOptionError
from streamlake.options import suggestion

PLACEHOLDER = re.compile(r"\{([^{}]*)\}")
TOPIC = "topic"
ROUTE = "route"
ROW = "row."
UPWARDS = re.compile(r"(^|/)\.\.?(/|$)")
"""A part of a location that is not the name of a directory, but leads to another one."""
REJECTS_ENDING = "__rejects"
"""Of the names of tables that hold the rejects of another; no row may name one."""


def is_template(table: str) -> bool:
    """Whether a table's name has placeholders, so that it stands for many."""
    return PLACEHOLDER.search(table) is not None


def row_placeholders(table: str) -> tuple[str, ...]:
    """Those of a template's placeholders that rows fill, in their order, each once."""
    found = [name for name in PLACEHOLDER.findall(table) if name == ROUTE or name.startswith(ROW)]
    return tuple(dict.fromkeys(found))


class TableNames:
    """`template` is a table's location or name with `{topic}`, or with the named groups of `topic_pattern`:
    "lake.{table}" for "shop\\.public\\.(?P<table>.+)"; with fields of rows, `{row.country}`, or `{route}` for what a function
    says (`has_route`). Raises InvalidOptionError for a placeholder that is none of them."""

    def __init__(self, template: str, topic_pattern: str | None, *, has_route: bool = False) -> None:
        self._template = template
        self._pattern = None if topic_pattern is None else re.compile(topic_pattern)
        known = [TOPIC, *(() if self._pattern is None else self._pattern.groupindex)]
        known += [ROUTE] if has_route else []
        for name in PLACEHOLDER.findall(template):
            if name == ROUTE and not has_route:
                raise InvalidOptionError(
                    f"the table '{template}' has the placeholder '{{{ROUTE}}}', and no function is given that says what it is; "
                    "give one as route"
                )
            if name not in known and (not name.startswith(ROW) or name == ROW):
                near = suggestion(name, known)
                hint = f"did you mean '{near}'?" if near else f"there is {', '.join(known)}"
                raise InvalidOptionError(
                    f"the table '{template}' has the placeholder '{{{name}}}', which neither is 'topic' nor a named group "
                    f"(?P<{name}>...) of the topic pattern; {hint}. A field of the row is '{{row.{name or 'name'}}}'"
                )

    @property
    def by_row(self) -> bool:
        """Whether the topic alone does not tell the table."""
        return bool(row_placeholders(self._template))

    def of(self, topic: str) -> str:
        """The table of a topic, with the placeholders left in that rows fill. Raises InvalidOptionError where a part of the
        name is empty, leads to another directory, or makes the name of the rejects of another table."""
        found = None if self._pattern is None else self._pattern.fullmatch(topic)
        parts: Mapping[str, str | None] = {TOPIC: topic, **({} if found is None else found.groupdict())}

        def filled(placeholder: re.Match[str]) -> str:
            name = placeholder[1]
            if name not in parts:
                return placeholder[0]
            part = parts[name]
            if not part:
                raise InvalidOptionError(
                    f"the topic '{topic}' gives no table: the group '{name}' of the topic pattern is empty there"
                )
            return part

        table = PLACEHOLDER.sub(filled, self._template)
        for part in self._template.split("/"):
            # What the template itself says is the user's own.
            if PLACEHOLDER.search(part) and UPWARDS.search(PLACEHOLDER.sub(filled, part)):
                raise InvalidOptionError(
                    f"the topic '{topic}' gives the table '{table}', whose directory is another one's; leave the topic out with "
                    "the topic pattern, or write the table's name so that something stands before it"
                )
        if table.rstrip("/").endswith(REJECTS_ENDING) and not self._template.rstrip("/").endswith(
            REJECTS_ENDING
        ):
            raise InvalidOptionError(
                f"the topic '{topic}' gives the table '{table}', and names that end with {REJECTS_ENDING} are those of the rejects "
                "of another table; leave the topic out with the topic pattern, or write another ending behind it"
            )
        return table
