"""What every room does with options: names are checked, and an unknown one is an error that suggests the nearest.

The frozen values that options become live next to the room that reads them; this module holds what they share.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping
from dataclasses import fields
from typing import Any

from streamlake.errors import InvalidOptionError

_SECRET = re.compile(r"password|passwd|secret|token|jaas|auth|credential|dsn", re.IGNORECASE)
_CREDENTIALS = re.compile(r"(?<=//)[^/@\s,]*@")
_HIDDEN = "***"


class ShownFields:
    """A dataclass whose text shows no secret: neither a field nor an option of a name like that of one, nor what stands
    before the host in an address."""

    def __repr__(self) -> str:
        parts = ", ".join(
            f"{part.name}={shown(getattr(self, part.name), part.name)!r}"
            for part in fields(self)  # type: ignore[arg-type]
            if part.repr
        )
        return f"{type(self).__name__}({parts})"


def shown(value: Any, name: str = "") -> Any:
    """An option's value, or options by their names, as they may be shown."""
    if isinstance(value, Mapping):
        return {key: shown(each, str(key)) for key, each in value.items()}
    if value is not None and not isinstance(value, bool) and _SECRET.search(name):
        return _HIDDEN
    return _CREDENTIALS.sub(f"{_HIDDEN}@", value) if isinstance(value, str) else value


def suggestion(name: str, known: Iterable[str]) -> str:
    """The known name nearest to `name`, or an empty string when none is near."""
    folded = {key.lower().replace("_", "-"): key for key in known}
    near = difflib.get_close_matches(name.lower().replace("_", "-"), folded, n=1, cutoff=0.6)
    return folded[near[0]] if near else ""


def unknown_option(name: str, known: Iterable[str], where: str) -> InvalidOptionError:
    """The error for an option that `where` does not have: with the nearest name, or with all of them."""
    names = list(known)
    near = suggestion(name, names)
    hint = f"did you mean '{near}'?" if near else f"known here: {', '.join(sorted(names))}"
    return InvalidOptionError(f"{where}: unknown option '{name}'; {hint}")


def check_option_names(given: Iterable[str], known: Iterable[str], where: str) -> None:
    """Raise InvalidOptionError for the first name in `given` that is not in `known`."""
    names = list(known)
    for name in given:
        if name not in names:
            raise unknown_option(str(name), names, where)


def int_property(properties: Mapping[str, str], key: str, default: int, *, minimum: int = 0) -> int:
    """The property as an int; InvalidOptionError when it is none or below `minimum`."""
    text = properties.get(key)
    if text is None:
        return default
    try:
        value = int(str(text).strip())
    except ValueError:
        raise InvalidOptionError(
            f"table property {key}={text!r} is not an integer; set it to one or unset it"
        ) from None
    if value < minimum:
        raise InvalidOptionError(
            f"table property {key}={value} is below {minimum}; set it to at least {minimum}"
        )
    return value


def bool_property(properties: Mapping[str, str], key: str, default: bool) -> bool:
    """The property as a bool; only `true` and `false` are accepted (any case)."""
    text = properties.get(key)
    if text is None:
        return default
    folded = str(text).strip().lower()
    if folded not in ("true", "false"):
        raise InvalidOptionError(
            f"table property {key}={text!r} is neither true nor false; set it to one of them"
        )
    return folded == "true"
