"""Options of the JSON decoder (`json.*`), parsed once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from streamlake.errors import InvalidOptionError
from streamlake.options import check_option_names, suggestion

EPOCH_UNITS = {
    "epoch-seconds": 1_000_000_000,
    "epoch-millis": 1_000_000,
    "epoch-micros": 1_000,
    "epoch-nanos": 1,
}
"""`json.timestamp-format` for numbers -> nanoseconds per unit."""

NOTICE = "notice"
"""Value of `unknown_fields` for tables that follow their stream: these fields raise NewFieldsError."""

_CHOICES = {
    "json.timestamp-format": ("iso", *EPOCH_UNITS),
    "json.unknown-fields": ("ignore", "fail"),
}


@dataclass(frozen=True)
class JsonOptions:
    """The parsed `json.*` options.

    `timestamp_format`: "iso" (text only), or the unit of a number in a timestamp column (text stays allowed).
    `unknown_fields`: "ignore" or "fail" for top-level and nested fields that the schema does not have; or
    NOTICE, which exempts the top-level fields that are `known`.
    """

    timestamp_format: str = "iso"
    unknown_fields: str = "ignore"
    known: frozenset[str] = frozenset()

    @property
    def epoch_nanos(self) -> int | None:
        """Nanoseconds per unit of a number in a timestamp column; None where numbers are refused."""
        return EPOCH_UNITS.get(self.timestamp_format)

    @staticmethod
    def parse(options: Mapping[str, str]) -> JsonOptions:
        """The options by name. Raises InvalidOptionError for an unknown name or value."""
        check_option_names(options, _CHOICES, "the JSON decoder")
        for name, value in options.items():
            if value not in _CHOICES[name]:
                near = suggestion(value, _CHOICES[name])
                hint = f". Did you mean '{near}'?" if near else ""
                raise InvalidOptionError(f"{name} is '{value}'; it can be {', '.join(_CHOICES[name])}{hint}")
        return JsonOptions(
            options.get("json.timestamp-format", "iso"), options.get("json.unknown-fields", "ignore")
        )
