"""What Debezium's decoders need to know of the form that records are written in: JSON, or Avro with a schema registry.

A `PayloadForm` stands between the raw batch and `DebeziumEvents` or `DebeziumUnwrapped`, which know nothing of bytes.
Invariant: `PayloadForm.payload` gives a record as its JSON would say it, whatever the form, and `Payloads.read` gives for
the fields it is asked for the same values in bulk.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from typing import Any, Protocol

import pyarrow as pa

from streamlake.decode.connect_schema import ConnectSchema
from streamlake.decode.envelope import Records
from streamlake.decode.new_fields import Watch
from streamlake.spec.types import NestedField

Array = Any  # numpy array
Path = tuple[str, ...]


class Payloads(Protocol):
    """Records that all have the same schema, `connect` (None: they come without one), which `identity` tells from others."""

    @property
    def records(self) -> Records: ...

    @property
    def connect(self) -> ConnectSchema | None: ...

    @property
    def identity(self) -> Hashable: ...

    @property
    def complete(self) -> bool:
        """Whether each record has all fields of the schema, so that null never means that a field is not there."""
        ...

    def samples(self) -> list[dict[str, Any]]:
        """A few payloads, as `PayloadForm.payload` gives them; those that are no objects are left out."""
        ...

    def first_change(self) -> list[dict[str, Any]]:
        """The first payload that names its connector, where samples may have missed it."""
        ...

    def take(self, chosen: Array) -> Payloads:
        """The payloads at (m,) integer places of these."""
        ...

    def read(
        self, fields: Sequence[NestedField], watch: Watch | None = None, watched: Path = ()
    ) -> list[pa.Array]:
        """One array per field, (n,) each, null where a record has none.

        With a `watch`, fields of the object at the path `watched` that are not asked for raise NewFieldsError, unless a
        schema tells of them. Raises NotBulkError.
        """
        ...


class PayloadForm(Protocol):
    """Reads the payloads of one task's records, and remembers their schemas."""

    def runs(self, records: Records) -> Iterator[Payloads]:
        """The records, grouped by their schema. Raises NotBulkError."""
        ...

    def payload(self, value: bytes) -> tuple[Any, ConnectSchema | None]:
        """The payload of one record's value or key as JSON has it, and its schema. Raises ValueError with the reason."""
        ...

    def shown_schemas(
        self, records: Sequence[tuple[bytes | None, bytes]]
    ) -> Sequence[tuple[bytes | None, bytes]]:
        """Those (key, value) of records that show every schema there is, in order; all of them where only values show."""
        ...
