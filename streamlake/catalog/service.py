"""Opens catalog services by PyIceberg's clients, which are optional and loaded only here.

A metastore's client holds a pointer, and all else is done by streamlake itself. Other services, such as REST
catalogs, apply the changes that are sent to them.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from importlib import import_module
from threading import Lock
from typing import Any

from streamlake.catalog.client_errors import is_outage
from streamlake.catalog.metastores.dynamodb_metastore import DynamoDbMetastore, dynamodb_catalog
from streamlake.catalog.metastores.glue_metastore import GlueMetastore
from streamlake.catalog.metastores.hive_metastore import HiveMetastore
from streamlake.catalog.metastores.metastore_catalog import MetastoreCatalog
from streamlake.catalog.metastores.pointers import Metastore
from streamlake.catalog.metastores.sql_metastore import SqlMetastore
from streamlake.catalog.service_catalog import ServiceCatalog
from streamlake.errors import InvalidOptionError, StorageError, StreamlakeError

_EXTRAS = {
    "rest": "rest",
    "sql": "sql",
    "hive": "hive",
    "glue": "glue",
    "dynamodb": "dynamodb",
    "in-memory": "sql",
}
"""Types of catalogs, and the extra of this package that brings what their client needs."""
SERVICE_TYPES = tuple(_EXTRAS)
_WITH_ADDRESS = {
    "rest": "http://host:8181",
    "sql": "postgresql+psycopg://user@host/catalog",
    "hive": "thrift://host:9083",
}
"""Examples of the address that these types of catalogs need."""
_METASTORES: Mapping[str, Callable[[Any], Metastore]] = {
    "SqlCatalog": SqlMetastore,
    "GlueCatalog": GlueMetastore,
    "DynamoDbCatalog": DynamoDbMetastore,
    "HiveCatalog": HiveMetastore,
}
"""PyIceberg's clients that hold a pointer for us, by the name of their class."""


def _not_installed(catalog: str | Mapping[str, str], error: Exception) -> InvalidOptionError:
    extra = _EXTRAS.get(catalog.get("type", ""), "all") if isinstance(catalog, Mapping) else "all"
    return InvalidOptionError(
        f"catalog: {_shown(catalog)} needs packages that are not installed ({error}); on the driver run: "
        f"python -m pip install 'streamlake[{extra}]'"
    )


def configured_properties(name: str) -> Mapping[str, str]:
    """The properties of a catalog in PyIceberg's configuration; none for one that it does not know.

    Raises InvalidOptionError when PyIceberg is not installed.
    """
    try:
        config = import_module("pyiceberg.utils.config").Config()
    except ImportError as error:
        raise _not_installed(name, error) from error
    return dict(config.get_catalog_config(name) or {})


def load_service(catalog: str | Mapping[str, str]) -> MetastoreCatalog | ServiceCatalog:
    """The catalog of a name in PyIceberg's configuration, or of a mapping of its properties.

    Its client is made once per process. Raises InvalidOptionError when it cannot be set up, StorageError when
    its service does not answer.
    """
    if isinstance(catalog, str):
        name, properties = catalog, configured_properties(catalog)
    else:
        name = str(catalog.get("name", "default"))
        properties = {key: value for key, value in catalog.items() if key != "name"}
    # A forked child makes its own clients: connections cannot be shared with the parent.
    key = (os.getpid(), isinstance(catalog, str), name, repr(sorted(properties.items())))
    with _opening:
        found = _opened.pop(key, None)
        _opened[key] = found = _open(catalog, name, properties) if found is None else found
        while len(_opened) > _MOST_OPENED:
            del _opened[next(iter(_opened))]
    return found


_MOST_OPENED = 32
_opening = Lock()
_opened: dict[Any, MetastoreCatalog | ServiceCatalog] = {}


def _open(
    catalog: str | Mapping[str, str], name: str, properties: Mapping[str, Any]
) -> MetastoreCatalog | ServiceCatalog:
    try:
        if properties.get("type") == "dynamodb":
            client = dynamodb_catalog(name, properties)
        else:
            loader = import_module("pyiceberg.catalog").load_catalog
            given = dict(properties)
            if "glue.max-retries" in properties:  # the client passes text on to one that takes numbers
                given["glue.max-retries"] = int(properties["glue.max-retries"])
            client = loader(name, **given)
        kinds = [kind.__name__ for kind in type(client).__mro__]
        metastore = next((_METASTORES[kind] for kind in kinds if kind in _METASTORES), None)
        return (
            ServiceCatalog(name, client, properties)
            if metastore is None
            else MetastoreCatalog(metastore(client))
        )
    except StreamlakeError:
        raise
    except Exception as error:
        if isinstance(error, ImportError) or type(error).__name__ == "NotInstalledError":
            raise _not_installed(catalog, error) from error
        if is_outage(error):
            raise StorageError(f"catalog: {_shown(catalog)} cannot be reached: {error}") from error
        if isinstance(catalog, str) and not _is_configured(catalog):
            raise InvalidOptionError(
                f"catalog '{catalog}' is neither in .pyiceberg.yaml (looked for in PYICEBERG_HOME, the home "
                "directory and the current one) nor in environment variables "
                f"PYICEBERG_CATALOG__{catalog.upper()}__...: configure it there, or give its properties in "
                "place of the name"
            ) from error
        if isinstance(catalog, Mapping) and catalog.get("type") in _WITH_ADDRESS and "uri" not in catalog:
            raise InvalidOptionError(
                f"catalog: {_shown(catalog)} lacks the address of the catalog; add uri, such as "
                f"uri={_WITH_ADDRESS[catalog['type']]}"
            ) from error
        advice = "; add glue.region, or set AWS_REGION" if "specify a region" in str(error) else ""
        raise InvalidOptionError(f"catalog: {_shown(catalog)} cannot be opened: {error}{advice}") from error


def _is_configured(name: str) -> bool:
    try:
        return bool(configured_properties(name))
    except (StreamlakeError, ValueError):
        return True  # what is wrong with the configuration is the better message


def _shown(catalog: str | Mapping[str, str]) -> str:
    return repr(catalog) if isinstance(catalog, str) else f"the {catalog.get('type', 'given')} catalog"
