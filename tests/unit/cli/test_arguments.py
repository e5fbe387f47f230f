"""Values on the command line: secrets come from files and from the environment."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from streamlake.cli.arguments import option_pairs, option_value, parse_catalog
from streamlake.cli.commands import verify
from streamlake.errors import InvalidOptionError


def test_secrets_are_read_where_they_lie(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = tmp_path / "kept"
    kept.write_text("s3cr=et, with a comma\n")
    monkeypatch.setenv("KAFKA_PASSWORD", "from-outside")
    options = [f"kafka.sasl.password=@{kept}", "a=x${KAFKA_PASSWORD}y", "b=@@at", "c=${NOT_SET:-d}"]
    assert option_pairs(options) == {
        "kafka.sasl.password": "s3cr=et, with a comma",
        "a": "xfrom-outsidey",
        "b": "@at",
        "c": "d",
    }
    assert parse_catalog(f"type=rest,uri=http://c,token=@{kept}") == {
        "type": "rest",
        "uri": "http://c",
        "token": "s3cr=et, with a comma",
    }
    assert parse_catalog("prod") == "prod"
    assert parse_catalog(None) is None


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("@/not/there", "--option a: the file /not/there cannot be read"),
        ("${SURELY_NOT_SET_1}", "--option a needs the environment variable SURELY_NOT_SET_1"),
    ],
)
def test_what_cannot_be_read_is_told(text: str, problem: str) -> None:
    with pytest.raises(InvalidOptionError, match=problem):
        option_pairs([f"a={text}"])


def test_a_file_that_is_no_text_is_not_shown(tmp_path: Path) -> None:
    (tmp_path / "key").write_bytes(b"\xff\xfesecret")
    with pytest.raises(InvalidOptionError, match="is not UTF-8 text") as caught:
        option_value(f"@{tmp_path / 'key'}", "--postgres")
    assert "secret" not in str(caught.value)


def test_verify_takes_its_dsn_from_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "dsn").write_text("host=db password=s3cret\n")
    given: list[Any] = []

    def in_postgres(*arguments: Any) -> list[Any]:
        given.append(SimpleNamespace(dsn=arguments[2]))
        return []

    monkeypatch.setattr(verify, "_in_postgres", in_postgres)
    monkeypatch.setattr(verify, "content", lambda _: {})
    verify.run(
        "/lake/orders",
        against=None,
        pipeline=None,
        postgres=f"@{tmp_path / 'dsn'}",
        postgres_table=None,
        as_json=False,
        catalog=None,
        against_catalog=None,
        schema=None,
        options=(),
    )
    assert [each.dsn for each in given] == ["host=db password=s3cret"]
