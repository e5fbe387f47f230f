"""The modes of a sink, and the arguments that belong to each."""

from __future__ import annotations

from typing import Any

from streamlake.errors import InvalidOptionError
from streamlake.pipeline.runs.upsert_options import unknown_value
from streamlake.write.upsert.upsert_target import CHANGELOG, UPSERT

MODES = ("append", "overwrite", "dynamic-overwrite", UPSERT, CHANGELOG)
UPSERT_MODES = (UPSERT, CHANGELOG)


def check_mode(mode: str, **upserts: Any) -> None:
    """Raises InvalidOptionError for an unknown mode, and for arguments that belong to another mode."""
    if mode not in MODES:
        raise unknown_value("mode", mode, MODES)
    if mode in UPSERT_MODES:
        if mode == CHANGELOG and upserts["row_kind"] is None:
            raise InvalidOptionError(
                "mode 'changelog' needs to know which changes delete: name the column in row_kind, or use "
                "mode 'upsert' for a stream of new versions of rows"
            )
        return
    given = [name for name, value in upserts.items() if value]
    if given:
        raise InvalidOptionError(
            f"{', '.join(given)} belongs to the modes upsert and changelog, not to '{mode}'"
        )
