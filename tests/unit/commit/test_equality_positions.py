"""Why commits in equality mode validate no data files: positions are of files that the same commit adds."""

from __future__ import annotations

import pyarrow as pa
import pytest

from streamlake import load_table
from streamlake.catalog.open import open_table
from streamlake.formats.deletes.deletion_vectors import read_deletion_vector
from streamlake.formats.deletes.position_deletes import read_position_deletes
from streamlake.spec.metadata.data_file import FileContent
from streamlake.write.upsert import upsert_task
from tests.helpers import foreign_writers
from tests.helpers.invariants import check_table
from tests.helpers.local_upserts import LocalUpserts
from tests.helpers.tables import make_table


@pytest.mark.parametrize("granularity", ["file", "partition"])
@pytest.mark.parametrize("version", [2, 3])
def test_positions_are_of_own_files_and_compactions_do_no_harm(tmp_path, monkeypatch, version, granularity):
    monkeypatch.setattr(upsert_task, "_CHUNK_ROWS", 1)
    location = str(tmp_path / "t")
    make_table(tmp_path / "t", "id long, v string", (), version, {"write.delete.granularity": granularity})
    stream = LocalUpserts(location, key=["id"], delete_mode="equality", batch_rows=1)
    wanted = {}
    for step in range(4):
        ids = [1, 2, 3, 1, 2, 4 + step]
        changes = pa.table({"id": ids, "v": [f"{step}-{at}" for at in range(6)]})

        def others(committable):
            io = open_table(location).io
            files = stream.run.committer.files(committable)
            own = {file.file_path for file in files if file.is_data}
            positions = [file for file in files if file.content == FileContent.POSITION_DELETES]
            assert positions, "the checkpoint replaces rows of its own"
            for file in positions:
                if file.is_deletion_vector:
                    assert len(read_deletion_vector(io, file))
                    assert file.referenced_data_file in own
                else:
                    assert set(read_position_deletes(io, file)) <= own
            foreign_writers.compact(location, lambda _: True)

        stream.checkpoint(changes, between=others)
        wanted.update(zip(ids, changes["v"].to_pylist(), strict=True))
        found = load_table(location).scan().to_arrow()
        assert dict(zip(found["id"].to_pylist(), found["v"].to_pylist(), strict=True)) == wanted
        assert found.num_rows == len(wanted)
    check_table(open_table(location), files_exist=True)
