"""What a DataFrame must be to be written, checked before its query starts and with each micro-batch."""

from __future__ import annotations

from collections.abc import Iterable

from streamlake.errors import InvalidOptionError
from streamlake.pipeline.runs.rejects import require_records


def require_rows(columns: Iterable[str], on_error: str) -> None:
    """Raise InvalidOptionError for a column name that Spark cannot hand to Python, and for an `on_error` that
    only records have.
    """
    require_records(on_error)
    for name in columns:
        if "." in name:
            plain = name.replace(".", "_")
            raise InvalidOptionError(
                f"the column '{name}' has a dot in its name, which Spark takes for a field of a struct: "
                f"rename it before the sink by .withColumnRenamed('{name}', '{plain}'), or by "
                f"`{name}` as {plain} in select"
            )
