"""Texts with `${NAME}` in them, and what the environment says in its place, so that secrets stay out of files and commands.

Messages name the variable and where it is needed, and never show a value.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from streamlake.errors import InvalidOptionError

_VARIABLE = re.compile(r"\$\$\{|\$\{([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\}")


def substituted(value: Any, where: str, environment: Mapping[str, str]) -> Any:
    """The value with `${NAME}` replaced in every text below it; `$${` stands for a literal `${`."""
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
                f"{where} needs the environment variable {match[1]}, which is not set; "
                f"set it, or write ${{{match[1]}:-default}}"
            )
        return found

    return _VARIABLE.sub(replace, value)
