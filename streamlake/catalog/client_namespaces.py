"""The namespaces of a catalog service, which PyIceberg's clients know. Names are dotted."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from streamlake.catalog.client_errors import translated
from streamlake.errors import InvalidOptionError


class ClientNamespaces:
    """The part of a catalog that is the same for all of PyIceberg's clients."""

    def __init__(self, client: Any) -> None:
        self._client = client

    def list_namespaces(self, parent: str = "") -> list[str]:
        """The names of the namespaces directly in a namespace ("": at the top), sorted."""
        with translated(f"listing namespaces of catalog {self._client.name}"):
            found = self._client.list_namespaces(parent) if parent else self._client.list_namespaces()
        return sorted(".".join(name) for name in found)

    def create_namespace(self, name: str, properties: Mapping[str, str]) -> None:
        """Create a namespace. Raises TableAlreadyExistsError."""
        _require_name(name)
        with translated(f"creating namespace {name} in catalog {self._client.name}"):
            self._client.create_namespace(name, dict(properties))

    def drop_namespace(self, name: str) -> None:
        """Drop an empty namespace. Raises TableNotFoundError, InvalidOptionError where it is not empty."""
        inner = self.list_namespaces(name)
        if inner:
            raise InvalidOptionError(
                f"dropping namespace {name} from catalog {self._client.name}: it holds namespaces, for "
                f"example {inner[0]}; drop them first"
            )
        with translated(f"dropping namespace {name} from catalog {self._client.name}"):
            self._client.drop_namespace(name)

    def namespace_properties(self, name: str) -> dict[str, str]:
        """The properties of a namespace. Raises TableNotFoundError."""
        with translated(f"loading namespace {name} from catalog {self._client.name}"):
            return dict(self._client.load_namespace_properties(name))

    def update_namespace_properties(
        self, name: str, updates: Mapping[str, str], removals: Iterable[str] = ()
    ) -> None:
        """Set and remove properties of a namespace. Raises TableNotFoundError."""
        removed = set(removals)
        both = sorted(removed.intersection(updates))
        if both:
            raise InvalidOptionError(f"namespace property {both[0]} cannot be set and removed in one update")
        with translated(f"changing namespace {name} of catalog {self._client.name}"):
            self._client.update_namespace_properties(name, removed, dict(updates))


def _require_name(name: str) -> None:
    if not all(name.split(".")):
        raise InvalidOptionError(f"{name!r} is not the name of a namespace; write db, or outer.inner")
