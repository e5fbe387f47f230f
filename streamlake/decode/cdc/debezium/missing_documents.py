"""Check whether MongoDB's connector sends updates without their documents, by a sample of records.

Used by `streamlake check`. An update without a document is no change where the document was deleted
meanwhile. Where the connector never looks documents up (`capture.mode=change_streams`), it is a change that
cannot be applied. A single record does not distinguish the two.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress

from streamlake.decode.cdc.debezium.debezium_options import CAPTURE_MODE
from streamlake.decode.cdc.debezium.debezium_parts import debezium_parts

_EVENTS = ("debezium-json", "debezium-avro")
_CONNECTOR = "mongodb"


def lacks_documents(format: str, values: Iterable[bytes], options: Mapping[str, str]) -> bool:
    """Whether MongoDB's updates come without documents, and `options` do not say that this is intended."""
    if format not in _EVENTS or CAPTURE_MODE in options:
        return False
    form = debezium_parts(format, options)[1]
    found: set[bool] = set()
    for value in values:
        with suppress(ValueError):  # the decoder reports records that cannot be read
            payload, _ = form.payload(value)
            source = payload.get("source") if isinstance(payload, dict) else None
            connector = source.get("connector") if isinstance(source, dict) else None
            if connector == _CONNECTOR and payload.get("op") == "u":
                found.add(payload.get("after") is not None)
    return found == {False}
