"""The settings of a catalog that are about storage.

They travel to executors, and what opens the catalog itself does not.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from streamlake import clock
from streamlake.errors import FeatureUnsupportedError
from streamlake.storage.object_settings import known_properties
from streamlake.storage.webhdfs import HDFS_PROPERTIES

STORAGE_PREFIXES = ("s3.", "gcs.", "adls.", "hdfs.", "client.")


def storage_settings(properties: Mapping[str, Any]) -> dict[str, str]:
    """Those of a catalog's properties that its storage needs, as text."""
    return {key: str(value) for key, value in properties.items() if key.startswith(STORAGE_PREFIXES)}


_SIGNING = ("s3.remote-signing-enabled", "s3.signer", "s3.signer.uri", "s3.signer.endpoint")
_KEYS = ("s3.access-key-id", "client.access-key-id")
_EXPIRIES = (
    "s3.session-token-expires-at-ms",
    "gcs.oauth2.token-expires-at",
    "adls.sas-token-expires-at-ms",
)
_LONGEST_MARGIN_MS = 300_000


def served_settings(
    sent: Mapping[str, Any], given: Mapping[str, Any], catalog: str
) -> tuple[dict[str, str], int | None]:
    """The settings that a server has `sent` with a table, and when they expire (epoch ms; None: never).

    What is not known is left out, unless the user has `given` it. Raises FeatureUnsupportedError where the
    server wants to sign each request itself.
    """
    known = known_properties()
    settings = {
        key: value
        for key, value in storage_settings(sent).items()
        if key in known or key in given or key in HDFS_PROPERTIES or key.startswith("adls.sas-token.")
    }
    signs = settings.get("s3.remote-signing-enabled", "").lower() == "true"
    if signs and not any(settings.get(key) for key in _KEYS):
        raise FeatureUnsupportedError(
            f"catalog {catalog} wants to sign each request to S3 itself (s3.remote-signing-enabled), which "
            "is not supported: have it vend credentials (header.X-Iceberg-Access-Delegation: "
            "vended-credentials), or give s3.access-key-id and s3.secret-access-key"
        )
    settings = {key: value for key, value in settings.items() if key not in _SIGNING}
    times = [str(value) for key, value in sent.items() if key.startswith(_EXPIRIES)]
    return settings, min((int(text) for text in times if text.strip().isdigit()), default=None)


def renewal_ms(expires_ms: int | None) -> int | None:
    """When new credentials are to be replaced: 5 minutes before they expire, or half-way there."""
    if expires_ms is None:
        return None
    now = clock.now_ms()
    return expires_ms - min(_LONGEST_MARGIN_MS, max(0, expires_ms - now) // 2)
