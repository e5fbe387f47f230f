"""Kafka client options (`kafka.*`): Java's and librdkafka's names and text values as kafka-python's keywords.

Only options that reach and secure the connection, and that tune fetching, are passed through. Options that
decide which records are read belong to KafkaSource and are refused here, because they would break
exactly-once.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from kafka import KafkaConsumer

from streamlake.errors import InvalidOptionError
from streamlake.options import unknown_option
from streamlake.source.oauth_tokens import OAuthTokens

PREFIX = "kafka."
_ALIASES = {
    "ssl.ca.location": "ssl_cafile",
    "ssl.certificate.location": "ssl_certfile",
    "ssl.key.location": "ssl_keyfile",
    "ssl.key.password": "ssl_password",
    "sasl.username": "sasl_plain_username",
    "sasl.password": "sasl_plain_password",
    "sasl.mechanisms": "sasl_mechanism",
    "sasl.kerberos.service.name": "sasl_kerberos_service_name",
    "check.crcs": "check_crcs",
    "fetch.max.wait.ms": "fetch_max_wait_ms",
    "max.partition.fetch.bytes": "max_partition_fetch_bytes",
}
_OWNED = {
    "bootstrap_servers": "it is the argument bootstrap_servers",
    "group_id": "streamlake keeps offsets in Spark's checkpoint, not in a consumer group",
    "group_instance_id": "streamlake keeps offsets in Spark's checkpoint, not in a consumer group",
    "auto_offset_reset": "use the option starting-offsets",
    "enable_auto_commit": "offsets are kept in Spark's checkpoint",
    "auto_commit_interval_ms": "offsets are kept in Spark's checkpoint",
    "isolation_level": "use the option isolation-level",
    "key_deserializer": "values are decoded by the source's format and schema",
    "value_deserializer": "values are decoded by the source's format and schema",
    "allow_auto_create_topics": "streamlake never creates topics",
    "max_poll_records": "it has no meaning here",
}
_TEXT = {
    "client_id", "client_rack", "client_dns_lookup", "security_protocol", "proxy_url",
    "ssl_cafile", "ssl_certfile", "ssl_keyfile", "ssl_crlfile", "ssl_password", "ssl_ciphers",
    "sasl_mechanism", "sasl_plain_username", "sasl_plain_password", "sasl_kerberos_name",
    "sasl_kerberos_service_name", "sasl_kerberos_domain_name",
}  # fmt: skip
_FLAGS = {"ssl_check_hostname", "check_crcs", "enable_incremental_fetch_sessions"}
_NUMBERS = {
    "fetch_max_wait_ms", "fetch_min_bytes", "fetch_max_bytes", "max_partition_fetch_bytes",
    "request_timeout_ms",
    "retry_backoff_ms", "reconnect_backoff_ms", "reconnect_backoff_max_ms", "connections_max_idle_ms",
    "max_in_flight_requests_per_connection", "receive_buffer_bytes", "send_buffer_bytes",
    "receive_message_max_bytes", "bootstrap_timeout_ms", "metadata_max_age_ms",
}  # fmt: skip
KNOWN = frozenset((_TEXT | _FLAGS | _NUMBERS) & set(KafkaConsumer.DEFAULT_CONFIG))
_OAUTH = {
    "sasl.oauthbearer.token.endpoint.url": "endpoint",
    "sasl.oauthbearer.client.id": "client_id",
    "sasl.oauthbearer.client.credentials.client.id": "client_id",
    "sasl.oauthbearer.client.secret": "client_secret",
    "sasl.oauthbearer.client.credentials.client.secret": "client_secret",
    "sasl.oauthbearer.scope": "scope",
    "sasl.oauthbearer.extensions": "more",
    "sasl.oauthbearer.method": "method",
    "https.ca.location": "ca_location",
}
_JAAS_PAIR = re.compile(r'(\w+)\s*=\s*"((?:[^"\\]|\\.)*)"')


def client_options(options: Mapping[str, str]) -> dict[str, Any]:
    """kafka-python keywords for the entries of `options` that begin with "kafka.".

    Raises InvalidOptionError for a name that is unknown or that the user may not set, and for an invalid
    value.
    """
    parsed: dict[str, Any] = {}
    oauth: dict[str, Any] = {}
    for key, value in options.items():
        if not key.lower().startswith(PREFIX):
            continue
        name = key[len(PREFIX) :].lower()
        if name == "sasl.jaas.config":
            found = _jaas(value)
            oauth |= {
                part: found.pop(part) for part in ("client_id", "client_secret", "scope") if part in found
            }
            parsed |= found
            continue
        if name in _OAUTH:
            oauth[_OAUTH[name]] = value
            continue
        keyword = _ALIASES.get(name, name.replace(".", "_").replace("-", "_"))
        if keyword in _OWNED:
            raise InvalidOptionError(f"the Kafka option '{key}' cannot be set: {_OWNED[keyword]}")
        if keyword not in KNOWN:
            names = [PREFIX + known.replace("_", ".") for known in KNOWN] + [
                PREFIX + known for known in (*_ALIASES, *_OAUTH)
            ]
            raise unknown_option(key, names, "KafkaSource")
        parsed[keyword] = _typed(key, keyword, str(value))
    return parsed | _token_provider(parsed, oauth)


def _token_provider(parsed: Mapping[str, Any], oauth: dict[str, Any]) -> dict[str, Any]:
    """The keyword with the token provider for SASL/OAUTHBEARER, where that is the mechanism."""
    wanted = str(parsed.get("sasl_mechanism", "")).upper() == "OAUTHBEARER"
    if not wanted and not oauth:
        return {}
    if not wanted:
        raise InvalidOptionError(
            "the kafka.sasl.oauthbearer.* options belong to kafka.sasl.mechanism=OAUTHBEARER: give that "
            "too, or leave them out"
        )
    if "endpoint" not in oauth:
        raise InvalidOptionError(
            "kafka.sasl.mechanism=OAUTHBEARER needs kafka.sasl.oauthbearer.token.endpoint.url, the address "
            "of the OAuth server's tokens, or file:///PATH of a file with the token"
        )
    method = oauth.pop("method", "oidc").lower()
    if method != "oidc":
        raise InvalidOptionError(
            f"the Kafka option 'kafka.sasl.oauthbearer.method' is '{method}'; it can be oidc"
        )
    pairs = [part.partition("=") for part in oauth.pop("more", "").split(",") if part.strip()]
    more = tuple((name.strip(), value.strip()) for name, _, value in pairs)
    return {"sasl_mechanism": "OAUTHBEARER", "sasl_oauth_token_provider": OAuthTokens(**oauth, more=more)}


def _typed(key: str, keyword: str, value: str) -> Any:
    if keyword in _FLAGS:
        if value.lower() not in ("true", "false"):
            raise InvalidOptionError(f"the Kafka option '{key}' is '{value}'; it can be true or false")
        return value.lower() == "true"
    if keyword in _NUMBERS:
        if not value.strip().isdigit():
            raise InvalidOptionError(f"the Kafka option '{key}' is '{value}'; it must be a whole number")
        return int(value)
    return value


def _jaas(text: str) -> dict[str, str]:
    """The settings in a JAAS line as Java clients have it.

    For PLAIN and SCRAM these are user name and password; for OAUTHBEARER the client's id and secret, and the
    scope.
    """
    pairs = {name.lower(): value.replace('\\"', '"') for name, value in _JAAS_PAIR.findall(text)}
    if "clientid" in pairs and "clientsecret" in pairs:
        scope = {"scope": pairs["scope"]} if "scope" in pairs else {}
        return {"client_id": pairs["clientid"], "client_secret": pairs["clientsecret"], **scope}
    if "username" not in pairs or "password" not in pairs:
        raise InvalidOptionError(
            "the Kafka option 'kafka.sasl.jaas.config' has no username and password in quotes; give "
            "kafka.sasl.plain.username and kafka.sasl.plain.password instead"
        )
    return {"sasl_plain_username": pairs["username"], "sasl_plain_password": pairs["password"]}
