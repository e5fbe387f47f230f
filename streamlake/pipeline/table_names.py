"""Which table a topic goes into: a template whose placeholders are filled from the topic's name."""

from __future__ import annotations

import re
from collections.abc import Mapping

from streamlake.errors import InvalidOptionError
from streamlake.options import suggestion

_PLACEHOLDER = re.compile(r"\{([^{}]*)\}")
TOPIC = "topic"


def is_template(table: str) -> bool:
    """Whether a table's name has placeholders, so that it stands for many."""
    return _PLACEHOLDER.search(table) is not None


class TableNames:
    """`template` is a table's location or name with `{topic}`, or with the named groups of `topic_pattern`:
    "lake.{table}" for "shop\\.public\\.(?P<table>.+)". Raises InvalidOptionError for a placeholder that is neither."""

    def __init__(self, template: str, topic_pattern: str | None) -> None:
        self._template = template
        self._pattern = None if topic_pattern is None else re.compile(topic_pattern)
        known = [TOPIC, *(() if self._pattern is None else self._pattern.groupindex)]
        for name in _PLACEHOLDER.findall(template):
            if name not in known:
                near = suggestion(name, known)
                hint = f"did you mean '{near}'?" if near else f"there is {', '.join(known)}"
                raise InvalidOptionError(
                    f"the table '{template}' has the placeholder '{{{name}}}', which neither is 'topic' nor a named group "
                    f"(?P<{name}>...) of the topic pattern; {hint}"
                )

    def of(self, topic: str) -> str:
        """The table of a topic. Raises InvalidOptionError where a part of the name is empty."""
        found = None if self._pattern is None else self._pattern.fullmatch(topic)
        parts: Mapping[str, str | None] = {TOPIC: topic, **({} if found is None else found.groupdict())}

        def filled(placeholder: re.Match[str]) -> str:
            part = parts[placeholder[1]]
            if not part:
                raise InvalidOptionError(
                    f"the topic '{topic}' gives no table: the group '{placeholder[1]}' of the topic pattern is empty there"
                )
            return part

        return _PLACEHOLDER.sub(filled, self._template)
