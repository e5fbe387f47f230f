"""Records as Kafka Connect's Avro converter writes them, from the JSON that its JSON converter writes with schemas."""

from __future__ import annotations

import base64
import json
from decimal import Decimal
from functools import lru_cache
from io import BytesIO
from typing import Any

import fastavro

from tests.helpers.schema_registry import RegistryServer, framed

_KINDS = {
    "int8": "int",
    "int16": "int",
    "int32": "int",
    "int64": "long",
    "float": "float",
    "float32": "float",
    "double": "double",
    "float64": "double",
}
_LOGICAL = {
    "org.apache.kafka.connect.data.Decimal": "decimal",
    "org.apache.kafka.connect.data.Date": "date",
    "org.apache.kafka.connect.data.Time": "time-millis",
    "org.apache.kafka.connect.data.Timestamp": "timestamp-millis",
}


def avro_schema(connect: dict[str, Any]) -> Any:
    """The converter's schema for a Connect schema, names and parameters in properties."""
    return _type(connect, set())


def encoded(connect: dict[str, Any], payload: Any) -> bytes:
    """A payload of JSON in Avro, without the header."""
    out = BytesIO()
    fastavro.schemaless_writer(out, _parsed(json.dumps(connect)), _value(connect, payload))
    return out.getvalue()


class ConnectWriter:
    """Registers each schema once under a topic's subjects, and writes records with it."""

    def __init__(self, server: RegistryServer, topic: str = "orders") -> None:
        self._server = server
        self._topic = topic
        self._ids: dict[str, int] = {}

    def record(self, found: Any, part: str = "value") -> bytes | None:
        """{"schema": ..., "payload": ...} in the registry's wire format; None stays None."""
        if found is None:
            return None
        text = json.dumps([part, found["schema"]])
        if text not in self._ids:
            self._ids[text] = self._server.register(f"{self._topic}-{part}", avro_schema(found["schema"]))
        return framed(self._ids[text], encoded(found["schema"], found["payload"]))


@lru_cache(maxsize=64)
def _parsed(text: str) -> Any:
    return fastavro.parse_schema(avro_schema(json.loads(text)))


def _type(connect: dict[str, Any], named: set[str]) -> Any:
    made = _required(connect, named)
    return ["null", made] if connect.get("optional") else made


def _required(connect: dict[str, Any], named: set[str]) -> Any:
    kind, name = connect["type"], connect.get("name")
    about: dict[str, Any] = {}
    if name is not None:
        about["connect.name"] = name
    if connect.get("parameters"):
        about["connect.parameters"] = connect["parameters"]
    if kind == "struct":
        full = name or f"io.confluent.connect.avro.ConnectDefault{len(named)}"
        if full in named:
            return full
        named.add(full)
        fields = []
        for part in connect["fields"]:
            default = {"default": None} if part.get("optional") else {}
            fields.append({"name": part["field"], "type": _type(part, named), **default})
        return {"type": "record", "name": full, "fields": fields, **about}
    if kind == "array":
        return {"type": "array", "items": _type(connect["items"], named), **about}
    if kind == "map":
        if connect["keys"]["type"] == "string" and not connect["keys"].get("optional"):
            return {"type": "map", "values": _type(connect["values"], named), **about}
        entry = {
            "type": "record",
            "name": f"io.confluent.connect.avro.MapEntry{len(named)}",
            "connect.internal.type": "MapEntry",
            "fields": [
                {"name": "key", "type": _type(connect["keys"], named)},
                {"name": "value", "type": _type(connect["values"], named)},
            ],
        }
        named.add(entry["name"])
        return {"type": "array", "items": entry, **about}
    if kind in ("int8", "int16"):
        about["connect.type"] = kind
    if name in _LOGICAL:
        about["logicalType"] = _LOGICAL[name]
    if about.get("logicalType") == "decimal":
        parameters = connect.get("parameters", {})
        about["scale"] = int(parameters["scale"])
        about["precision"] = int(parameters.get("connect.decimal.precision", 64))
    return {"type": _KINDS.get(kind, kind), **about}


def _value(connect: dict[str, Any], found: Any) -> Any:
    if found is None:
        return None
    kind = connect["type"]
    if kind == "struct":
        return {part["field"]: _value(part, found.get(part["field"])) for part in connect["fields"]}
    if kind == "array":
        return [_value(connect["items"], item) for item in found]
    if kind == "map":
        if isinstance(found, dict):
            return {key: _value(connect["values"], item) for key, item in found.items()}
        return [{"key": key, "value": _value(connect["values"], item)} for key, item in found]
    if kind == "bytes":
        return base64.b64decode(found)
    return float(found) if isinstance(found, (Decimal, int)) and kind in ("float", "double") else found
