"""The manifests of a checkpoint: one per spec and content, with everything a commit assigns left open."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import fastavro

from streamlake.checkpoint.delta_manifests import write_delta_manifests
from streamlake.formats.manifests.manifests import read_manifest
from streamlake.spec.metadata.data_file import FileContent
from streamlake.spec.metadata.manifest import ManifestContent
from tests.helpers.tables import data_file, make_table


def test_one_manifest_per_content_in_the_tables_codec(tmp_path: Path) -> None:
    table = make_table(
        tmp_path, partition_by=("category",), properties={"write.manifest.compression-codec": "uncompressed"}
    )
    files = [data_file(table, "a"), data_file(table, "b")]
    deletes = replace(data_file(table, "a"), content=FileContent.POSITION_DELETES)
    manifests = write_delta_manifests(table.io, table.locations, table.metadata, [*files, deletes], "u")
    assert [manifest.content for manifest in manifests] == [ManifestContent.DATA, ManifestContent.DELETES]
    for manifest, expected in zip(manifests, (files, [deletes]), strict=True):
        assert (manifest.added_snapshot_id, manifest.sequence_number) == (None, None)
        assert [entry.data_file for entry in read_manifest(table.io, manifest, table.specs)] == expected
        with open(manifest.manifest_path, "rb") as stream:
            assert fastavro.reader(stream).metadata["avro.codec"] == "null"
