"""The clients of object stores: one per process and bucket, with credentials that renew themselves.

obstore's threads do not survive a fork: a child that was forked after its parent had used a client would wait
for ever. Invariant: a client is used in the process that made it, and a forked child gets an error instead.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta, timezone
from functools import lru_cache
from importlib import import_module
from typing import Any

from obstore.store import AzureStore, GCSStore, S3Store

from streamlake.errors import InvalidOptionError, StorageError
from streamlake.storage.object_settings import (
    GCS_SCHEMES,
    S3_SCHEMES,
    StoreSettings,
    role_seconds,
    store_settings,
)

_RETRY: Any = {"max_retries": 6, "retry_timeout": timedelta(seconds=60)}
_PROFILE_RENEWED = timedelta(minutes=30)
_used_in: list[int] = []
"""The id of the process that has used a client, in it and in the children that it forks."""


def client(scheme: str, authority: str, properties: Mapping[str, str]) -> Any:
    """The obstore client of a bucket, or of `container@account...`.

    Raises InvalidOptionError for properties that cannot be used, StorageError in a child that was forked
    after its parent had used a client.
    """
    process = os.getpid()
    if not _used_in:
        _used_in.append(process)
    if _used_in[0] != process:
        raise StorageError(
            f"{scheme}://{authority}: this process was forked from one that had used object storage, whose "
            "connections do not work here. Start child processes with the method 'spawn' or 'forkserver'"
        )
    return _client(scheme, authority, tuple(sorted(properties.items())))


@lru_cache(maxsize=64)
def _client(scheme: str, authority: str, items: tuple[tuple[str, str], ...]) -> Any:
    settings = store_settings(scheme, authority, dict(items))
    given: dict[str, Any] = {
        "config": dict(settings.config),
        "client_options": dict(settings.client),
        "retry_config": _RETRY,
    }
    if scheme in S3_SCHEMES:
        provider = _aws_provider(settings)
        if provider is not None:
            given["credential_provider"] = provider
        return S3Store(settings.bucket, **given)
    if scheme in GCS_SCHEMES:
        if settings.expires_at is not None:
            token = given["config"].pop("bearer_token", None)
            given["credential_provider"] = lambda: {"token": token, "expires_at": settings.expires_at}
        return GCSStore(settings.bucket, **given)
    return AzureStore(settings.bucket, **given)


def _aws_provider(settings: StoreSettings) -> Callable[[], dict[str, Any]] | None:
    """What gives the credentials of a role or a profile; None: obstore finds them itself."""
    if not settings.role and settings.profile is None:
        return None
    session = _aws_session(settings)
    role = settings.role
    if not role:
        known = session.get_credentials()
        if known is None:
            raise InvalidOptionError(f"the AWS profile {settings.profile!r} has no credentials")

        def of_profile() -> dict[str, Any]:
            now = known.get_frozen_credentials()
            return {
                "access_key_id": now.access_key,
                "secret_access_key": now.secret_key,
                "token": now.token,
                "expires_at": datetime.now(timezone.utc) + _PROFILE_RENEWED,
            }

        return of_profile
    asked = {
        "RoleArn": role["arn"],
        "RoleSessionName": role.get("session", "streamlake"),
        "DurationSeconds": role_seconds(role),
    }
    if "external-id" in role:
        asked["ExternalId"] = role["external-id"]
    sts = session.client("sts", region_name=role.get("region") or settings.config.get("region"))

    def of_role() -> dict[str, Any]:
        found = sts.assume_role(**asked)["Credentials"]
        return {
            "access_key_id": found["AccessKeyId"],
            "secret_access_key": found["SecretAccessKey"],
            "token": found["SessionToken"],
            "expires_at": found["Expiration"],
        }

    return of_role


def _aws_session(settings: StoreSettings) -> Any:
    try:
        session = import_module("boto3.session")
    except ImportError:
        raise InvalidOptionError(
            "a role to assume (client.role-arn) and a profile (client.profile-name) need boto3: "
            "pip install boto3"
        ) from None
    config = settings.config
    return session.Session(
        aws_access_key_id=config.get("access_key_id"),
        aws_secret_access_key=config.get("secret_access_key"),
        aws_session_token=config.get("session_token"),
        region_name=config.get("region"),
        profile_name=settings.profile,
    )
