"""Interface between Debezium's decoders and the records' form: JSON, or Avro with a schema registry.

A `PayloadForm` stands between the raw batch and `DebeziumEvents` or `DebeziumUnwrapped`, which know nothing
of bytes. Invariant: whatever the form, `PayloadForm.payload` gives a record as its JSON would be, and
`Payloads.read` gives the same values in bulk for the requested fields.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from typing import Any, Protocol

import pyarrow as pa

from streamlake.decode.values.connect_schema import ConnectSchema
from streamlake.decode.values.envelope import Records
from streamlake.decode.values.new_fields import Watch
from streamlake.spec.types.data_types import NestedField

Array = Any  # numpy array
Path = tuple[str, ...]


class Payloads(Protocol):
    """Payloads of one schema, `connect` (None: they have none), which `identity` identifies."""

    @property
    def records(self) -> Records:
        """The records that the payloads are of, in the same order."""

    @property
    def connect(self) -> ConnectSchema | None:
        """The schema that all payloads have; None without one."""

    @property
    def identity(self) -> Hashable:
        """What distinguishes this schema from others."""

    @property
    def complete(self) -> bool:
        """Whether each record has all fields of the schema, so that null never means a missing field."""
        ...

    def samples(self) -> list[dict[str, Any]]:
        """A few payloads, as `PayloadForm.payload` gives them, without those that are not objects."""
        ...

    def first_change(self) -> list[dict[str, Any]]:
        """The first payload that names its connector, for when the samples do not include a change."""
        ...

    def take(self, chosen: Array) -> Payloads:
        """The payloads at (m,) integer indexes of these."""
        ...

    def read(
        self, fields: Sequence[NestedField], watch: Watch | None = None, watched: Path = ()
    ) -> list[pa.Array]:
        """One array per field, (n,) each, null where a record has none.

        With a `watch`, fields of the object at the path `watched` that are not requested raise
        NewFieldsError, unless a schema describes them. Raises NotBulkError.
        """
        ...


class PayloadForm(Protocol):
    """Reads the payloads of one task's records, and remembers their schemas."""

    def runs(self, records: Records) -> Iterator[Payloads]:
        """The records, grouped by their schema. Raises NotBulkError."""
        ...

    def payload(self, value: bytes) -> tuple[Any, ConnectSchema | None]:
        """The payload of one record's value or key as JSON has it, and its schema.

        Raises ValueError with the reason.
        """
        ...

    def shown_schemas(
        self, records: Sequence[tuple[bytes | None, bytes]]
    ) -> Sequence[tuple[bytes | None, bytes]]:
        """The (key, value) pairs that show every schema, in order; all of them where only values show it."""
        ...
