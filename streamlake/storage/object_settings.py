"""The settings of object stores: property names of Iceberg and PyIceberg as arguments of obstore's clients.

Keys and secrets that are not given are those of the environment or of the machine (instance, container and
workload credentials), as the client finds them. Invariant: a property of a known prefix that nothing here
knows is an error, so that a misspelt one is not ignored.
"""

from __future__ import annotations

import difflib
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from typing import Any

from streamlake.errors import FeatureUnsupportedError, InvalidOptionError

S3_SCHEMES = ("s3", "s3a", "s3n")
GCS_SCHEMES = ("gs", "gcs")
AZURE_SCHEMES = ("abfs", "abfss", "wasb", "wasbs")
OBJECT_SCHEMES = (*S3_SCHEMES, *GCS_SCHEMES, *AZURE_SCHEMES)

_S3_CONFIG = {
    "client.region": "region",
    "client.access-key-id": "access_key_id",
    "client.secret-access-key": "secret_access_key",
    "client.session-token": "session_token",
    "s3.region": "region",
    "s3.endpoint": "endpoint",
    "s3.access-key-id": "access_key_id",
    "s3.secret-access-key": "secret_access_key",
    "s3.session-token": "session_token",
}
_S3_CLIENT = {"s3.proxy-uri": "proxy_url"}
_S3_SECONDS = {"s3.connect-timeout": "connect_timeout", "s3.request-timeout": "timeout"}
_S3_FLAGS = ("s3.path-style-access", "s3.force-virtual-addressing", "s3.anonymous")
_S3_SSE = ("s3.sse.type", "s3.sse.key", "s3.sse.md5")
_S3_ROLE = {
    "client.role-arn": "arn",
    "client.assume-role.arn": "arn",
    "s3.role-arn": "arn",
    "client.role-session-name": "session",
    "client.session-name": "session",
    "client.assume-role.session-name": "session",
    "s3.role-session-name": "session",
    "client.assume-role.region": "region",
    "client.assume-role.external-id": "external-id",
    "client.assume-role.timeout-sec": "seconds",
}
_S3_SIGNING = ("s3.remote-signing-enabled", "s3.signer")
_S3_OTHER = ("client.profile-name", "s3.profile-name", "client.factory")
_OF_OTHER_CLIENTS = (
    "s3.signer.endpoint",
    "s3.signer.uri",
    "s3.resolve-region",
    "s3.retry-strategy-impl",
    "s3.multipart.",
    "s3.staging-dir",
    "s3.write.",
    "s3.delete.",
    "s3.delete-enabled",
    "s3.acl",
    "s3.checksum-enabled",
    "s3.preload-client-enabled",
    "s3.use-arn-region-enabled",
    "s3.dualstack-enabled",
    "s3.cross-region-access-enabled",
    "s3.access-points.",
    "s3.retry.",
    "s3.strict-",
    "s3.analytics-accelerator.",
    "s3.crt.",
    "gcs.channel.",
    "gcs.delete.",
    "gcs.version-aware",
    "gcs.cache-timeout",
    "gcs.consistency",
    "gcs.access",
    "gcs.session-kwargs",
    "gcs.default-location",
    "gcs.default-bucket-location",
    "gcs.requester-pays",
    "gcs.user-project",
    "gcs.client-lib-token",
    "gcs.oauth2.refresh-",
    "adls.read.",
    "adls.write.",
    "adls.refresh-credentials-",
)
"""Names, and beginnings of names, that other clients have and that say nothing about where files are, who may
read them, or how they are kept."""

_GCS_CONFIG = {
    "gcs.service.host": "base_url",
    "gcs.endpoint": "base_url",
    "gcs.oauth2.token": "bearer_token",
    "gcs.service-account-path": "service_account",
}
_GCS_OTHER = ("gcs.project-id", "gcs.oauth2.token-expires-at", "gcs.no-auth")
_ADLS_CONFIG = {
    "adls.account-name": "account_name",
    "adls.account-key": "account_key",
    "adls.auth.shared-key.account.name": "account_name",
    "adls.auth.shared-key.account.key": "account_key",
    "adls.sas-token": "sas_key",
    "adls.token": "token",
    "adls.client-id": "client_id",
    "adls.client-secret": "client_secret",
    "adls.tenant-id": "tenant_id",
    "adls.endpoint": "endpoint",
}
_ADLS_OF_ACCOUNT = ("adls.sas-token.", "adls.connection-string.")
_ADLS_OTHER = ("adls.connection-string", "adls.account-host")
_CONNECTION = {
    "AccountName": "account_name",
    "AccountKey": "account_key",
    "SharedAccessSignature": "sas_key",
    "BlobEndpoint": "endpoint",
}
_PUBLIC_AZURE = (".dfs.core.windows.net", ".blob.core.windows.net")
_ROLE_SECONDS = 3600


@dataclass(frozen=True)
class StoreSettings:
    """What one bucket or container is opened with. `config` and `client` are obstore's; `role` has the parts
    of a role to assume; `profile` is a profile of the AWS configuration files.
    """

    scheme: str
    bucket: str
    config: Mapping[str, Any] = field(repr=False)
    client: Mapping[str, Any] = field(default_factory=dict)
    role: Mapping[str, str] = field(default_factory=dict)
    profile: str | None = None
    expires_at: datetime | None = None


def store_settings(scheme: str, authority: str, properties: Mapping[str, str]) -> StoreSettings:
    """The settings for the bucket, or for `container@account...` of Azure, that a path names.

    Raises InvalidOptionError for an unknown property or a value that cannot be read,
    FeatureUnsupportedError for remote signing.
    """
    if scheme in S3_SCHEMES:
        return _s3(scheme, authority, properties)
    if scheme in GCS_SCHEMES:
        return _gcs(scheme, authority, properties)
    return _azure(scheme, authority, properties)


def check_known(properties: Mapping[str, str]) -> None:
    """Raises InvalidOptionError for a property of an object store's prefix that is not known."""
    known = known_properties()
    for key in properties:
        if not key.startswith(("s3.", "gcs.", "adls.", "client.")) or key in known:
            continue
        if key.startswith((*_OF_OTHER_CLIENTS, *_ADLS_OF_ACCOUNT)):
            continue
        alike = [name for name in known if name.partition(".")[0] == key.partition(".")[0]]
        close = difflib.get_close_matches(key, alike, n=1)
        hint = f"did you mean {close[0]}?" if close else f"known are {', '.join(sorted(alike))}"
        raise InvalidOptionError(f"unknown storage property {key}; {hint}")


def known_properties() -> frozenset[str]:
    """The names of all properties that mean something here."""
    parts: Iterable[Iterable[str]] = (
        *(_S3_CONFIG, _S3_CLIENT, _S3_SECONDS, _S3_FLAGS, _S3_SSE, _S3_ROLE, _S3_SIGNING, _S3_OTHER),
        *(_GCS_CONFIG, _GCS_OTHER, _ADLS_CONFIG, _ADLS_OTHER),
    )
    return frozenset(name for part in parts for name in part)


def _s3(scheme: str, bucket: str, properties: Mapping[str, str]) -> StoreSettings:
    check_known(properties)
    _refuse_signing(properties)
    # Later names win: those of S3 over those of all AWS clients.
    config: dict[str, Any] = {
        name: properties[key] for key, name in _S3_CONFIG.items() if properties.get(key)
    }
    client: dict[str, Any] = {name: properties[key] for key, name in _S3_CLIENT.items() if key in properties}
    for key, name in _S3_SECONDS.items():
        if key in properties:
            client[name] = timedelta(seconds=_seconds(key, properties[key]))
    virtual = _flag(properties, "s3.force-virtual-addressing")
    path_style = _flag(properties, "s3.path-style-access")
    if virtual is None and path_style is not None:
        virtual = not path_style
    endpoint = config.get("endpoint")
    if virtual is None:
        # A service of its own address rarely has a name per bucket.
        virtual = endpoint is None and not any(map(os.environ.get, ("AWS_ENDPOINT_URL", "AWS_ENDPOINT")))
    if virtual and endpoint is not None and not _names_bucket(endpoint, bucket):
        kind, _, host = endpoint.partition("://")
        config["endpoint"] = f"{kind}://{bucket}.{host}"
    config["virtual_hosted_style_request"] = virtual
    if _flag(properties, "s3.anonymous"):
        config["skip_signature"] = True
    config.update(_encryption(properties))
    client.update(_http_allowed(endpoint, "AWS_ENDPOINT_URL", "AWS_ENDPOINT", "AWS_ENDPOINT_URL_S3"))
    role = {name: properties[key] for key, name in _S3_ROLE.items() if properties.get(key)}
    if role and "arn" not in role:
        raise InvalidOptionError(
            f"{', '.join(sorted(set(properties) & set(_S3_ROLE)))}: the role is missing; give client.role-arn"
        )
    profile = properties.get("s3.profile-name") or properties.get("client.profile-name")
    return StoreSettings(scheme, bucket, config, client, role, profile)


def _refuse_signing(properties: Mapping[str, str]) -> None:
    if _flag(properties, "s3.remote-signing-enabled") or properties.get("s3.signer"):
        raise FeatureUnsupportedError(
            "the catalog signs requests to S3 itself (s3.remote-signing-enabled), which is not supported: "
            "have it vend credentials instead (header.X-Iceberg-Access-Delegation: vended-credentials), or "
            "give s3.access-key-id and s3.secret-access-key"
        )


def _encryption(properties: Mapping[str, str]) -> dict[str, Any]:
    kind = properties.get("s3.sse.type", "none").lower()
    key = properties.get("s3.sse.key")
    if kind == "none":
        return {}
    if kind == "s3":
        return {"server_side_encryption": "AES256"}
    if kind in ("kms", "dsse-kms"):
        found = {"server_side_encryption": "aws:kms" if kind == "kms" else "aws:kms:dsse"}
        return {**found, "sse_kms_key_id": key} if key else found
    if kind == "custom" and key:
        return {"server_side_encryption": "sse-c", "sse_customer_key_base64": key}
    raise InvalidOptionError(
        f"s3.sse.type is {kind!r}; it can be none, s3, kms, dsse-kms, or custom with s3.sse.key"
    )


def _names_bucket(endpoint: str, bucket: str) -> bool:
    return endpoint.partition("://")[2].startswith(f"{bucket}.")


def _gcs(scheme: str, bucket: str, properties: Mapping[str, str]) -> StoreSettings:
    check_known(properties)
    config: dict[str, Any] = {
        name: properties[key] for key, name in _GCS_CONFIG.items() if properties.get(key)
    }
    if _flag(properties, "gcs.no-auth"):
        config["skip_signature"] = True
    client = _http_allowed(config.get("base_url"))
    return StoreSettings(scheme, bucket, config, client, expires_at=_expiry(properties))


def _expiry(properties: Mapping[str, str]) -> datetime | None:
    text = properties.get("gcs.oauth2.token-expires-at")
    if text is None:
        return None
    try:
        return datetime.fromtimestamp(int(text) / 1000, timezone.utc)
    except (ValueError, OverflowError):
        raise InvalidOptionError(
            f"gcs.oauth2.token-expires-at must be a time in milliseconds, not {text!r}"
        ) from None


def _azure(scheme: str, authority: str, properties: Mapping[str, str]) -> StoreSettings:
    check_known(properties)
    container, _, host = authority.partition("@")
    account = host.partition(".")[0]
    config: dict[str, Any] = {}
    for key in ("adls.connection-string", f"adls.connection-string.{host}"):
        config.update(_connection(properties.get(key, "")))
    config.update({name: properties[key] for key, name in _ADLS_CONFIG.items() if properties.get(key)})
    for name in (account, host):
        if properties.get(f"adls.sas-token.{name}"):
            config["sas_key"] = properties[f"adls.sas-token.{name}"]
    if account:
        config["account_name"] = account
    host = properties.get("adls.account-host") or host
    if "endpoint" not in config and host and not host.endswith(_PUBLIC_AZURE):
        config["endpoint"] = f"https://{host}"
    if not config.get("account_name") and not os.environ.get("AZURE_STORAGE_ACCOUNT_NAME"):
        raise InvalidOptionError(
            f"{scheme}://{authority}: the storage account is missing; write it into the location "
            f"({scheme}://container@account.dfs.core.windows.net/...), or give adls.account-name"
        )
    return StoreSettings(scheme, container, config, _http_allowed(config.get("endpoint")))


def _connection(text: str) -> dict[str, str]:
    """The parts of an Azure connection string."""
    parts = dict(part.split("=", 1) for part in text.split(";") if "=" in part)
    return {name: parts[key] for key, name in _CONNECTION.items() if key in parts}


def _http_allowed(endpoint: str | None, *variables: str) -> dict[str, Any]:
    given = endpoint or next(filter(None, map(os.environ.get, variables)), "")
    return {"allow_http": True} if given.startswith("http://") else {}


def _flag(properties: Mapping[str, str], key: str) -> bool | None:
    text = properties.get(key)
    if text is None:
        return None
    if str(text).lower() not in ("true", "false"):
        raise InvalidOptionError(f"{key} must be true or false, not {text!r}")
    return str(text).lower() == "true"


def _seconds(key: str, value: str) -> float:
    try:
        return float(value)
    except ValueError:
        raise InvalidOptionError(f"{key} must be a number of seconds, not {value!r}") from None


def role_seconds(role: Mapping[str, str]) -> int:
    """How long the credentials of a role are asked for."""
    return int(_seconds("client.assume-role.timeout-sec", role.get("seconds", str(_ROLE_SECONDS))))
