"""Shared helpers for options: names are checked, and the error for an unknown one suggests the nearest.

The frozen values that options become are beside the modules that read them.
"""

from __future__ import annotations

import difflib
import functools
import inspect
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields
from typing import Any, TypeVar

from streamlake.errors import InvalidOptionError, UnknownArgumentError

C = TypeVar("C", bound=Callable[..., Any])

_SECRET = re.compile(r"password|passwd|secret|token|jaas|auth|credential|dsn", re.IGNORECASE)
_CREDENTIALS = re.compile(r"(?<=//)[^/@\s,]*@")
_HIDDEN = "***"


@dataclass(frozen=True)
class Property:
    """The declaration of a table property, for the code and the reference.

    `name`, `default` as text ("": there is none), and its meaning. A `name` that ends with `<column>` or the
    like stands for one property of each column.
    """

    name: str
    default: str
    meaning: str


class ShownFields:
    """A dataclass whose text shows no secrets.

    It hides fields and options whose names are those of secrets, and user names and passwords in addresses.
    """

    def __repr__(self) -> str:
        parts = ", ".join(
            f"{part.name}={shown(getattr(self, part.name), part.name)!r}"
            for part in fields(self)  # type: ignore[arg-type]
            if part.repr
        )
        return f"{type(self).__name__}({parts})"


def shown(value: Any, name: str = "") -> Any:
    """An option's value, or options by their names, with secrets hidden."""
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


def named_arguments(function: C) -> C:
    """Decorator for what users call: an argument that it does not have is an UnknownArgumentError."""
    known = tuple(inspect.signature(function).parameters)[1:]

    @functools.wraps(function)
    def checked(*args: Any, **given: Any) -> Any:
        require_arguments(function, given, known)
        return function(*args, **given)

    return checked  # type: ignore[return-value]


def require_arguments(function: Callable[..., Any], given: Iterable[str], known: Iterable[str]) -> None:
    """Raise UnknownArgumentError for the first name in `given` that is none of `known`, the arguments of a
    method or constructor.
    """
    names = list(known)
    for name in given:
        if name not in names:
            where = function.__qualname__.removesuffix(".__init__")
            near = suggestion(name, names)
            hint = f"did you mean '{near}'?" if near else f"it has {', '.join(names)}"
            raise UnknownArgumentError(f"{where} has no argument '{name}'; {hint}")


def int_property(properties: Mapping[str, str], key: str, default: int, *, minimum: int = 0) -> int:
    """The property as an int. Raises InvalidOptionError when it is no int or below `minimum`."""
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
    """The property as a bool. Raises InvalidOptionError for anything but `true` and `false` (any case)."""
    text = properties.get(key)
    if text is None:
        return default
    folded = str(text).strip().lower()
    if folded not in ("true", "false"):
        raise InvalidOptionError(
            f"table property {key}={text!r} is neither true nor false; set it to one of them"
        )
    return folded == "true"
