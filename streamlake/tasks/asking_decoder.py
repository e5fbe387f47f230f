"""The decoder of a topic whose source table is not recorded yet: it asks the driver to record it.

It wraps the decoder of the format, in the tasks that read and where rejects are replayed. Invariant: only
records that are written decide what is recorded. Rejects, and rows that another read writes, have no say,
neither for the driver nor for the records after them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np
import pyarrow as pa

from streamlake.decode.cdc.envelope_decoder import record_error
from streamlake.decode.cdc.source_tables import with_source
from streamlake.decode.values.decoded import Decoded, Decoder
from streamlake.decode.values.envelope import Array
from streamlake.errors import NewSourceError

WrittenRows = Callable[[Decoded], Array]
"""Gives (rows,) bool of a batch: the rows that its reader writes."""


class AskingDecoder:
    """A decoder that raises NewSourceError for changes of a source table that is not recorded for its topic.

    `opened` gives a decoder that has read nothing yet, `sources` are the recorded source tables of all
    topics. With `written` None, all rows are written.
    """

    def __init__(
        self,
        opened: Callable[[], Decoder],
        topic: str,
        sources: Mapping[str, str],
        written: WrittenRows | None = None,
    ) -> None:
        self._opened = opened
        self._decoder = opened()
        self.schema = self._decoder.schema
        self._topic = topic
        self._sources = sources
        self._written = written

    def decode(self, raw: pa.RecordBatch, *, keep_rejects: bool = False) -> Decoded:
        """Decode a batch, see Decoder. Raises NewSourceError."""
        is_known = bool(self._sources.get(self._topic))
        # A truncate that is refused because nothing is recorded may be carried out once rows beside it have
        # named the table.
        decoded = self._decoder.decode(raw, keep_rejects=keep_rejects or not is_known)
        if self._is_news(decoded) and self._written is not None:
            decoded = self._sifted(raw, decoded, self._written)
        if self._is_news(decoded):
            raise NewSourceError(
                f"changes of the topic {self._topic} are of the table '{decoded.table}', which is not noted "
                "yet",
                self._topic,
                decoded.table or "",
            )
        if decoded.rejects and not keep_rejects:
            first = decoded.rejects[0]
            raise record_error(raw, first.record, first.reason)
        return decoded

    def _is_news(self, decoded: Decoded) -> bool:
        table = decoded.table
        return table is not None and with_source(self._sources, self._topic, table) != self._sources

    def _sifted(self, raw: pa.RecordBatch, decoded: Decoded, written: WrittenRows) -> Decoded:
        """Decode a batch as if records of which no row is written had not been read before the others.

        The result has the rows of these records, too, for others to handle.
        """
        kept: Array = np.arange(raw.num_rows)
        named = decoded.named
        apart: list[pa.RecordBatch] = []
        records: list[Array] = []
        while True:
            stays = np.isin(decoded.records, decoded.records[written(decoded)])
            if stays.all():
                break
            apart.append(decoded.rows.filter(pa.array(~stays)))
            records.append(kept[decoded.records[~stays]])
            kept = np.setdiff1d(kept, records[-1])
            self._decoder = self._opened()
            decoded = self._decoder.decode(raw.take(pa.array(kept)), keep_rejects=True)
        if not apart:
            return decoded
        places = np.concatenate([kept[decoded.records], *records])
        order = np.argsort(places, kind="stable")
        tables = [pa.Table.from_batches([each]) for each in (decoded.rows, *apart)]
        rows = pa.concat_tables(tables, promote_options="default").take(pa.array(order)).combine_chunks()
        return replace(
            decoded,
            raw=raw,
            rows=rows.to_batches()[0],
            records=places[order],
            truncates=tuple(replace(each, record=int(kept[each.record])) for each in decoded.truncates),
            moves=(),
            named=named,
            rejects=tuple(replace(each, record=int(kept[each.record])) for each in decoded.rejects),
        )
