"""Parser of the option `source-tables`: the names of source tables, parsed once, where they enter.

A name is written as in records: "database.table" or "database.schema.table", perhaps with the wildcards of
`fnmatch`, and after "server/" where only one of several servers is meant. Upper and lower case differ. Write
"?" for a comma in a name.
"""

from __future__ import annotations

import re

from streamlake.errors import InvalidOptionError

_QUOTED = re.compile(r"""["'`]|(?:^|[./])\[[^\]]*\](?:$|\.)""")
_OPEN = re.compile(r"\[(?!.?[^\]]*\])")


def parse_table_patterns(text: str) -> tuple[str, ...]:
    """The names between the commas, each once.

    Raises InvalidOptionError for an invalid name, or without any name.
    """
    found = tuple(dict.fromkeys(filter(None, map(str.strip, text.split(",")))))
    if not found:
        raise InvalidOptionError(
            f"source-tables is '{text}', which names no table; give names such as shop.users or "
            "shop.public.orders_*, or leave it out where each topic has one table"
        )
    for name in found:
        why = _fault(name)
        if why:
            raise InvalidOptionError(
                f"source-tables has '{name}', {why}; names are written as records have them, such as "
                "shop.users, shop.public.orders_*, or server/shop.users where only one of several servers is "
                "meant"
            )
    return found


def _fault(name: str) -> str:
    if _QUOTED.search(name):
        return "which has quotes"
    if _OPEN.search(name):
        return "in which a [ has no ]"
    parts = name.partition("/")[2] if "/" in name else name
    if not all(parts.split(".")):
        return "in which a part is empty"
    if any(part != part.strip() for part in parts.split(".")):
        return "in which there is a space beside a dot"
    return ""
