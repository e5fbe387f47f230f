"""Whether a location can be written is tried, and nothing of the trial stays."""

from __future__ import annotations

from pathlib import Path

import pytest

from streamlake.errors import StorageError
from streamlake.storage.write_access import require_writable


def test_a_file_is_tried_where_the_location_is_or_would_be(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried: list[Path] = []
    write = Path.write_bytes

    def noted(path: Path, data: bytes) -> int:
        tried.append(path.parent)
        return write(path, data)

    monkeypatch.setattr(Path, "write_bytes", noted)
    (tmp_path / "lake").mkdir()
    require_writable(str(tmp_path / "lake"))
    require_writable(str(tmp_path / "lake" / "orders" / "data"))
    assert tried == [tmp_path / "lake", tmp_path / "lake"]
    assert list((tmp_path / "lake").iterdir()) == []


def test_permissions_that_do_not_tell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A full disk, or a file system such as /proc, refuses where permissions allow it."""
    with pytest.raises(StorageError) as raised:
        require_writable("/proc/lake")
    assert str(raised.value).startswith("/proc/lake cannot be written: /proc takes no file (")

    def full(path: Path, data: bytes) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(
        StorageError, match=r"takes no file \(No space left on device\); choose another place, or make room"
    ):
        require_writable(str(tmp_path))
    assert list(tmp_path.iterdir()) == []
