"""A YAML text, read into values that know the line of each key; its errors are sentences with a line."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import yaml

from streamlake.errors import InvalidOptionError

Lines = Mapping[str, int]
"""The line of each key, counted from 1, by the keys' path with dots."""
_BRACKETS = {"while parsing a flow mapping": "{", "while parsing a flow sequence": "["}


def read_yaml(text: str, name: str) -> tuple[Any, Lines]:
    """The values of a YAML text and the lines of its keys; `name` stands for the text in messages.

    Raises InvalidOptionError.
    """
    try:
        loader = _StrictLoader(text)
        try:
            node = loader.get_single_node()
            content = None if node is None else loader.construct_document(node)
        finally:
            loader.dispose()
    except yaml.MarkedYAMLError as error:
        raise InvalidOptionError(f"{name} is not valid YAML{_place(error)}: {_problem(error)}") from error
    except yaml.YAMLError as error:
        raise InvalidOptionError(f"{name} is not valid YAML: {' '.join(str(error).split())}") from error
    lines: dict[str, int] = {}
    _add_lines(node, "", lines)
    return content, lines


def kind_of(value: Any) -> str:
    """What a value of a YAML text is, in the words of YAML; the value itself may be a secret."""
    if value is None:
        return "nothing"
    if isinstance(value, bool):
        return "true or false"
    if isinstance(value, int | float):
        return "a number"
    if isinstance(value, list):
        return "a list"
    return "a mapping" if isinstance(value, Mapping) else "a text"


class _StrictLoader(yaml.SafeLoader):
    """YAML's safe loader, except that a key given twice, or one that is no plain value, is an error."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen = set()
        for key_node, _ in node.value:
            if not isinstance(key_node, yaml.ScalarNode):
                raise yaml.constructor.ConstructorError(
                    None,
                    None,
                    "a key is a plain word. Put a text that begins with { or [ between quotes: '{topic}'",
                    key_node.start_mark,
                )
            key = self.construct_object(key_node, deep=True)
            if key in seen:
                raise yaml.constructor.ConstructorError(
                    None, None, f"the key '{key}' is given twice", key_node.start_mark
                )
            seen.add(key)
        return super().construct_mapping(node, deep)


def _place(error: yaml.MarkedYAMLError) -> str:
    mark = error.problem_mark or error.context_mark
    return "" if mark is None else f", line {mark.line + 1}, column {mark.column + 1}"


def _problem(error: yaml.MarkedYAMLError) -> str:
    """What is wrong and how to put it right, as far as YAML's own message shows it."""
    problem, context = str(error.problem or error.context or ""), str(error.context or "")
    if "'\\t'" in problem:
        return "there is a tab; indent with spaces"
    if context in _BRACKETS and error.context_mark is not None:
        return f"the {_BRACKETS[context]} of line {error.context_mark.line + 1} is not closed before this"
    if "mapping values are not allowed here" in problem:
        return "a colon is out of place; indent keys of one mapping alike, and quote a text that holds ': '"
    if "while scanning a quoted scalar" in context and error.context_mark is not None:
        return f"the quotes of line {error.context_mark.line + 1} are not closed"
    if problem.startswith("expected <block end>"):
        return "the indentation does not fit the lines before; indent keys of one mapping alike"
    if "could not find expected ':'" in problem:
        return "a colon is missing after a key of the line before"
    if "cannot start any token" in problem:
        return f"{problem.replace('found character', 'the character')}; put the text between quotes"
    return problem


def _add_lines(node: Any, path: str, lines: dict[str, int]) -> None:
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            inner = f"{path}.{key.value}" if path else str(key.value)
            lines[inner] = key.start_mark.line + 1
            _add_lines(value, inner, lines)
