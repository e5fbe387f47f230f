"""Options of the Debezium decoders (`debezium.*`), parsed once.

Most say how the connector is configured, in the connector's own words. They matter only for records that come
without a schema.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from streamlake.decode.values.unavailable import DEFAULT_PLACEHOLDER
from streamlake.errors import InvalidOptionError
from streamlake.options import check_option_names

REJECT, ALLOW = "reject", "allow"
FULL_UPDATES = "change_streams_update_full"
CAPTURE_MODE = "debezium.capture-mode"

_CHOICES: dict[str, tuple[str, ...] | None] = {
    "debezium.time-precision-mode": (
        "adaptive",
        "adaptive_time_microseconds",
        "connect",
        "microseconds",
        "nanoseconds",
        "isostring",
    ),
    "debezium.decimal-handling-mode": ("precise", "string", "double"),
    "debezium.binary-handling-mode": ("bytes", "base64", "hex"),
    "debezium.unavailable-value-placeholder": None,
    CAPTURE_MODE: (
        "change_streams",
        FULL_UPDATES,
        "change_streams_with_pre_image",
        "change_streams_update_full_with_pre_image",
    ),
    "debezium.lossy-conversion": (REJECT, ALLOW),
}


@dataclass(frozen=True)
class DebeziumOptions:
    """The parsed `debezium.*` options.

    `time_precision_mode`, `decimal_handling_mode`, `binary_handling_mode`, `unavailable_value_placeholder`
    and `capture_mode` are as the connector has them. `lossy_conversion`: whether digits that a column has no
    room for are dropped.
    """

    time_precision_mode: str = "adaptive"
    decimal_handling_mode: str = "precise"
    binary_handling_mode: str = "bytes"
    unavailable_value_placeholder: str = DEFAULT_PLACEHOLDER
    capture_mode: str = FULL_UPDATES
    lossy_conversion: str = REJECT

    @staticmethod
    def parse(options: Mapping[str, str]) -> DebeziumOptions:
        """The options by name. Raises InvalidOptionError for an unknown name or value."""
        check_option_names(options, _CHOICES, "the Debezium decoder")
        for name, value in options.items():
            choices = _CHOICES[name]
            if choices is not None and value not in choices:
                raise InvalidOptionError(f"{name} is '{value}'; it can be {', '.join(choices)}")
        return DebeziumOptions(
            **{name.removeprefix("debezium.").replace("-", "_"): value for name, value in options.items()}
        )

    @property
    def looks_documents_up(self) -> bool:
        """Whether an update of MongoDB's connector carries the document, if that still exists."""
        return self.capture_mode.startswith(FULL_UPDATES)

    @property
    def timestamp_nanos(self) -> int | None:
        """Nanoseconds per unit of a number in a timestamp column; None if the database's column decides."""
        return {"connect": 1_000_000, "microseconds": 1_000, "nanoseconds": 1}.get(self.time_precision_mode)

    @property
    def time_nanos(self) -> int | None:
        """Nanoseconds per unit of a number in a time column; None if the database's column decides."""
        if self.time_precision_mode == "adaptive_time_microseconds":
            return 1_000
        return self.timestamp_nanos
