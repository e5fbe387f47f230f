"""Sort orders: how rows inside a data file may be sorted (spec: Sorting)."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from streamlake.errors import InvalidOptionError
from streamlake.spec.partitioning.partition_spec import parse_transform_call
from streamlake.spec.partitioning.transforms import Transform, parse_transform
from streamlake.spec.types.schema import Schema


@dataclass(frozen=True)
class SortField:
    """One key of the order: a transform of a source column, with direction and null order.

    `direction` is "asc" or "desc", `null_order` is "nulls-first" or "nulls-last".
    """

    source_id: int
    transform: Transform
    direction: str = "asc"
    null_order: str = "nulls-first"


@dataclass(frozen=True)
class SortOrder:
    """Sort fields from the most to the least significant; id 0 is the unsorted order."""

    order_id: int
    fields: tuple[SortField, ...] = ()

    @property
    def is_unsorted(self) -> bool:
        """Whether the order has no fields."""
        return not self.fields


UNSORTED = SortOrder(0)
_TERM = re.compile(r"\s*(.*?)(?:\s+(asc|desc))?(?:\s+nulls\s+(first|last))?\s*", re.IGNORECASE)


def parse_sort_by(parts: Iterable[str], schema: Schema, order_id: int = 1) -> SortOrder:
    """A sort order from texts such as `["ts desc", "bucket(4, id)", "name asc nulls last"]`.

    By default nulls come first in ascending and last in descending order. Raises InvalidOptionError.
    """
    fields = []
    for text in [parts] if isinstance(parts, str) else parts:
        match = _TERM.fullmatch(text)
        if match is None:
            raise InvalidOptionError(f"sort_by: '{text}' is not understood; write e.g. 'ts desc nulls last'")
        source, transform, _ = parse_transform_call(match[1], schema, "sort_by")
        direction = (match[2] or "asc").lower()
        nulls = (match[3] or ("first" if direction == "asc" else "last")).lower()
        fields.append(SortField(source.field_id, transform, direction, f"nulls-{nulls}"))
    return SortOrder(order_id, tuple(fields)) if fields else UNSORTED


def sort_order_from_json(obj: dict[str, Any]) -> SortOrder:
    """A sort order from its JSON object in table metadata."""
    fields = tuple(
        SortField(
            source_id=part["source-id"] if "source-id" in part else part["source-ids"][0],
            transform=parse_transform(part["transform"]),
            direction=part["direction"],
            null_order=part["null-order"],
        )
        for part in obj["fields"]
    )
    return SortOrder(obj["order-id"], fields)


def sort_order_to_json(order: SortOrder) -> dict[str, Any]:
    """The JSON object of a sort order, the inverse of `sort_order_from_json`."""
    return {
        "order-id": order.order_id,
        "fields": [
            {
                "transform": str(part.transform),
                "source-id": part.source_id,
                "direction": part.direction,
                "null-order": part.null_order,
            }
            for part in order.fields
        ],
    }
