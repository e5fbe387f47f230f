"""One mapping of a pipeline file, with readers that check types and name key and line in every error.

Invariant: no message shows a value that may come from the environment, but for a choice or a number.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from streamlake.errors import InvalidOptionError
from streamlake.options import check_option_names, suggestion
from streamlake.pipeline.definition.yaml_text import Lines, kind_of


class Section:
    """The mapping at `path`, whose file is `name`; keys have the lines of `lines`."""

    def __init__(self, name: str, path: str, content: Any, lines: Lines) -> None:
        self.name, self.path, self.lines = name, path, lines
        if content is None:
            content = {}
        if not isinstance(content, Mapping):
            raise InvalidOptionError(
                f"{self.at()}: a mapping of keys to values is needed here, not {kind_of(content)}"
                f"{self.line('')}"
            )
        self.content = cast("Mapping[str, Any]", content)

    def at(self, key: str = "") -> str:
        """The place of the section, or of a key of it, for messages."""
        return f"{self.name}: {self._path_of(key)}".rstrip(": ")

    def wrong(self, key: str, problem: str) -> InvalidOptionError:
        """The error for what is wrong with a key."""
        return InvalidOptionError(f"{self.at(key)} {problem}{self.line(key)}")

    def mistyped(self, key: str, needed: str) -> InvalidOptionError:
        """The error for a value of another kind than the key takes."""
        return self.wrong(key, f"must be {needed}, not {kind_of(self.content.get(key))}")

    def only(self, *keys: str) -> None:
        """Raise InvalidOptionError for a key that is none of these, with the nearest one."""
        for name in map(str, self.content):
            try:
                check_option_names([name], keys, self.at())
            except InvalidOptionError as error:
                raise InvalidOptionError(f"{error}{self.line(name)}") from None

    def _path_of(self, key: str) -> str:
        return ".".join(filter(None, (self.path, key)))

    def line(self, key: str) -> str:
        """Where the file has the key; nothing for one that it does not have."""
        path = self._path_of(key)
        return f" (line {self.lines[path]})" if path in self.lines else ""

    def section(self, key: str) -> Section:
        """The mapping below a key. Raises InvalidOptionError where it is missing, or no mapping."""
        if key not in self.content:
            raise self.wrong(key, "is missing")
        return Section(self.name, self._path_of(key), self.content[key], self.lines)

    def required_text(self, key: str) -> str:
        """The text of a key. Raises InvalidOptionError where there is none."""
        value = self.text(key)
        if not value:
            raise self.wrong(key, "is missing")
        return value

    def text(self, key: str) -> str | None:
        """The text of a key; None where it is not given."""
        value = self.content.get(key)
        if value is None:
            return None
        if isinstance(value, bool | Mapping | list):
            raise self.wrong(key, f"must be a text, not {kind_of(value)}{_quotes(value)}")
        return str(value)

    def texts(self, key: str, *, required: bool = False) -> tuple[str, ...]:
        """The texts of a key: a list, or one alone."""
        value = self.content.get(key)
        if value is None or value == []:
            if required:
                raise self.wrong(key, "is missing")
            return ()
        values = value if isinstance(value, list) else [value]
        for item in values:
            if isinstance(item, bool | Mapping | list) or item is None:
                inside = " in it" if isinstance(value, list) else ""
                problem = f"must be a text or a list of texts, not {kind_of(item)}{inside}{_quotes(item)}"
                raise self.wrong(key, problem)
        return tuple(map(str, values))

    def choice(self, key: str, choices: tuple[str, ...], default: str) -> str:
        """The text of a key, which is one of `choices`."""
        value = self.text(key) or default
        if value not in choices:
            near = suggestion(value, choices)
            hint = f"; did you mean '{near}'?" if near else ""
            raise self.wrong(key, f"is '{value}', which is not one of {', '.join(choices)}{hint}")
        return value

    def integer(self, key: str) -> int | None:
        """The whole number of a key, at least 1; None where it is not given."""
        value = self.content.get(key)
        if value is None:
            return None
        try:
            if isinstance(value, bool | float):
                raise ValueError
            number = int(value)
        except (TypeError, ValueError):
            raise self.mistyped(key, "a whole number") from None
        if number < 1:
            raise self.wrong(key, f"is {number}; it must be at least 1")
        return number

    def flag(self, key: str) -> bool:
        """Whether a key that is given is true."""
        value = self.content.get(key)
        if isinstance(value, str) and value.lower() in ("true", "false"):
            return value.lower() == "true"
        if not isinstance(value, bool):
            raise self.mistyped(key, "true or false")
        return value

    def text_or_mapping(self, key: str) -> str | dict[str, str] | None:
        """What names something or describes it, such as a catalog; None where it is not given."""
        if isinstance(self.content.get(key), Mapping):
            return self.mapping(key)
        return self.text(key)

    def mapping(self, key: str) -> dict[str, str]:
        """String keys to texts; booleans become `true` and `false`, as options are written."""
        section = Section(self.name, self._path_of(key), self.content.get(key), self.lines)
        found = {}
        for name, value in section.content.items():
            if value is None or isinstance(value, Mapping | list):
                raise section.mistyped(str(name), "a text, a number, true or false")
            found[str(name)] = str(value).lower() if isinstance(value, bool) else str(value)
        return found


def _quotes(value: Any) -> str:
    """What to do where braces or brackets without quotes have made a text something else."""
    return "; put a text that begins with { or [ between quotes" if isinstance(value, Mapping | list) else ""
