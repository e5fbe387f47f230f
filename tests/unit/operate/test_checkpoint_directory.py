"""Checkpoint directories that are not on a local disk, as check, status, doctor, recover and replay open them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import pytest
from obstore.store import LocalStore

from streamlake.errors import InvalidOptionError
from streamlake.operate.check.check_points import Points, Verdict
from streamlake.operate.check.directory_check import opened_directory
from streamlake.operate.checkpoint_directory import existing_directory, started_directory
from streamlake.operate.status.status import StatusReader

LOCATION = "abfss://lake@account/jobs/orders"
CATALOG = {
    "type": "rest",
    "uri": "http://127.0.0.1:1",
    "adls.account-name": "account",
    "adls.account-key": "k",
}


@pytest.fixture
def azure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory that stands for Azure, which can be opened with the account's name only."""

    def client(scheme: str, authority: str, properties: Mapping[str, str]) -> LocalStore:
        if "adls.account-name" not in properties:
            raise InvalidOptionError(f"{scheme}:// needs the property adls.account-name")
        assert authority == "lake@account"
        return LocalStore(tmp_path / "lake")

    monkeypatch.setattr("streamlake.storage.object_store.client", client)
    (tmp_path / "lake/jobs/orders").mkdir(parents=True)
    return tmp_path / "lake/jobs/orders"


def start(directory: Path) -> None:
    (directory / "metadata").write_text(json.dumps({"id": "job-1"}))
    (directory / "offsets").mkdir()
    (directory / "commits").mkdir()


def test_storage_that_lacks_a_setting_says_nothing_of_a_query(azure: Path) -> None:
    for catalog in (None, {"type": "rest", "uri": "http://127.0.0.1:1"}):
        points = Points()
        assert opened_directory(LOCATION, catalog, points) == (None, False)
        [error] = points.found
        assert error.verdict is Verdict.ERROR
        assert "adls.account-name" in error.message
        with pytest.raises(InvalidOptionError, match=r"adls\.account-name"):
            started_directory(LOCATION, catalog)
    [note] = StatusReader(lambda topics, named: [], checkpoint=LOCATION).read().notes
    assert "adls.account-name" in note


def test_the_settings_of_the_catalog_open_the_directory(azure: Path) -> None:
    assert started_directory(LOCATION, CATALOG) is None
    with pytest.raises(InvalidOptionError, match="is not the checkpoint directory of a query"):
        existing_directory(LOCATION, CATALOG)
    points = Points()
    assert opened_directory(LOCATION, CATALOG, points) == (None, True)
    assert "no query has been started" in points.found[0].message
    start(azure)
    assert existing_directory(LOCATION, CATALOG).job_id == "job-1"
    points = Points()
    directory, is_readable = opened_directory(LOCATION, CATALOG, points)
    assert directory is not None
    assert (directory.job_id, is_readable) == ("job-1", True)
    assert not list(azure.glob(".streamlake-probe*"))


def test_a_damaged_id_is_no_directory_without_a_query(tmp_path: Path) -> None:
    (tmp_path / "metadata").write_text("{")
    points = Points()
    assert opened_directory(str(tmp_path), None, points) == (None, False)
    assert points.found[0].verdict is Verdict.ERROR


def test_the_settings_of_a_catalog_that_pyiceberg_knows(azure: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYICEBERG_CATALOG__LAKE__URI", "http://127.0.0.1:1")
    monkeypatch.setenv("PYICEBERG_CATALOG__LAKE__ADLS__ACCOUNT_NAME", "account")
    start(azure)
    assert existing_directory(LOCATION, "lake").job_id == "job-1"
