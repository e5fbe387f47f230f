"""Environment variables in texts: `${NAME}` is replaced, so that secrets stay out of files and commands.

Messages name the variable and where it is needed. They never show a value.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from streamlake.errors import InvalidOptionError

_VARIABLE = re.compile(r"\$\$\{|\$\{([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\}")


def substituted(value: Any, where: str, environment: Mapping[str, str]) -> Any:
    """The value with `${NAME}` and `${NAME:-default}` replaced in its texts; `$${` is a literal `${`.

    `where` names the place in messages. Raises InvalidOptionError for a variable that is not set and has no
    default.
    """
    if isinstance(value, Mapping):
        return {
            key: substituted(item, f"{where}: {key}" if ": " not in where else f"{where}.{key}", environment)
            for key, item in value.items()
        }
    if isinstance(value, list):
        return [substituted(item, where, environment) for item in value]
    if not isinstance(value, str):
        return value

    def replace(match: re.Match[str]) -> str:
        if match[1] is None:
            return "${"
        found = environment.get(match[1], match[2])
        if found is None:
            raise InvalidOptionError(
                f"{where} needs the environment variable {match[1]}, which is not set; set it, or write "
                f"${{{match[1]}:-default}}"
            )
        return found

    return _VARIABLE.sub(replace, value)
