"""Schemes and authorities of paths: whether a listed file is the one that metadata names with another prefix.

`s3a://b/t/f` and `s3://b/t/f` are one file, `hdfs://old/t/f` and `hdfs://new/t/f` perhaps: nobody but the
user knows. Invariant: such a file is never called an orphan by itself; it is an error until the user says
that the prefixes are equal, or what else is to happen.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from os.path import realpath

from streamlake.errors import DataInvalidError, InvalidOptionError
from streamlake.storage.local import local_path

_URI = re.compile(r"([A-Za-z][A-Za-z0-9+.\-]*)://([^/]*)(/.*)?", re.DOTALL)
_SAME_SCHEMES = {"s3n": "s3", "s3a": "s3", "gcs": "gs", "abfss": "abfs"}
_SHOWN = 5
Prefix = tuple[str, str]
"""Scheme and authority; both are empty for a local path."""


class PrefixMismatch(str, Enum):
    """What happens to a file whose path metadata names with another scheme or authority."""

    ERROR = "error"
    IGNORE = "ignore"
    DELETE = "delete"

    @staticmethod
    def parse(text: str | PrefixMismatch) -> PrefixMismatch:
        """The mode of this name, in any case. Raises InvalidOptionError."""
        try:
            return PrefixMismatch(str(getattr(text, "value", text)).lower())
        except ValueError:
            known = ", ".join(mode.value for mode in PrefixMismatch)
            raise InvalidOptionError(f"prefix_mismatch_mode={text!r} is none of {known}") from None


@dataclass(frozen=True)
class Located:
    """A path in its parts. Local paths have neither scheme nor authority."""

    scheme: str
    authority: str
    path: str


@dataclass(frozen=True)
class EqualPrefixes:
    """Which schemes and authorities are equal: name -> the one that stands for it."""

    schemes: Mapping[str, str] = field(default_factory=dict)
    authorities: Mapping[str, str] = field(default_factory=dict)

    @staticmethod
    def of(schemes: Mapping[str, str] | None, authorities: Mapping[str, str] | None) -> EqualPrefixes:
        """From options as Iceberg has them: {"s3a,s3n": "s3"} or {"s3a": "s3"}."""
        return EqualPrefixes({**_SAME_SCHEMES, **_flat(schemes)}, _flat(authorities))

    def located(self, path: str) -> Located:
        """The parts of a path, with equal schemes and authorities made one."""
        if path.startswith("/") or path[:5].lower() == "file:":
            return Located("", "", local_path(path))
        match = _URI.fullmatch(path)
        if match is None:
            raise DataInvalidError(
                f"{path}: the table's metadata names a file that is neither a path nor a URI"
            )
        scheme, authority = match[1].lower(), match[2]
        return Located(
            self.schemes.get(scheme, scheme), self.authorities.get(authority, authority), match[3] or "/"
        )


class NeededPaths:
    """The paths that metadata names, to be compared with listed ones."""

    def __init__(self, equal: EqualPrefixes) -> None:
        self._equal = equal
        self._named: dict[str, Prefix] = {}
        self._others: dict[str, set[Prefix]] = {}
        self._directories: dict[str, str] = {}

    def add(self, paths: Iterable[str]) -> None:
        """Record paths that are needed."""
        for path in paths:
            place = self._located(path)
            prefix = (place.scheme, place.authority)
            if self._named.setdefault(place.path, prefix) != prefix:
                self._others.setdefault(place.path, set()).add(prefix)

    def has(self, path: str) -> bool:
        """Whether a listed file is needed."""
        place = self._located(path)
        prefix = (place.scheme, place.authority)
        return self._named.get(place.path) == prefix or prefix in self._others.get(place.path, ())

    def differing(self, path: str) -> tuple[Prefix, Prefix] | None:
        """The prefixes of a file that is not needed, and of a needed one that has the same path otherwise."""
        place = self._located(path)
        named = self._named.get(place.path)
        return None if named is None else ((place.scheme, place.authority), named)

    def _located(self, path: str) -> Located:
        """The parts of a path. That of a local file goes through no link, `..` or double slash: metadata may
        name a file in another way than the folder in which it was listed.
        """
        place = self._equal.located(path)
        if place.scheme:
            return place
        directory, _, name = place.path.rpartition("/")
        real = self._directories.get(directory)
        if real is None:
            real = self._directories[directory] = realpath(directory or "/")
        return Located("", "", f"{real}/{name}")


def mismatch_error(table: str, examples: list[tuple[str, tuple[Prefix, Prefix]]]) -> DataInvalidError:
    """The error for files that only differ from needed ones in scheme or authority."""
    pairs = list(dict.fromkeys(pair for _, pair in examples))[:_SHOWN]
    shown = "; ".join(f"listed as {_shown(found)}, in the metadata {_shown(named)}" for found, named in pairs)
    return DataInvalidError(
        f"{table}: {len(examples):,} files differ from files of the table in scheme or authority only "
        f"({shown}), for example {examples[0][0]}. Nothing was deleted. If they are the same files, say "
        "so with equal_schemes={'hdfs': 'viewfs'} or equal_authorities={'old': 'new'}; or give "
        "prefix_mismatch_mode 'ignore' to leave them alone, 'delete' to delete them as orphans"
    )


def _shown(prefix: Prefix) -> str:
    scheme, authority = prefix
    return f"{scheme}://{authority}" if scheme else "a local path"


def _flat(given: Mapping[str, str] | None) -> dict[str, str]:
    return {
        name.strip(): to.strip() for names, to in (given or {}).items() for name in names.split(",") if name
    }
