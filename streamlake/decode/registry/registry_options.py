"""Options of the schema registry (`schema-registry.*`), parsed once: how it is reached."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import SplitResult, unquote, urlsplit

from streamlake.errors import InvalidOptionError
from streamlake.options import check_option_names

PREFIX = "schema-registry."
_NAMES = tuple(
    f"{PREFIX}{name}"
    for name in (
        "url",
        "subject",
        "basic-auth",
        "bearer-token",
        "timeout-ms",
        "retries",
        "ssl.ca-location",
        "ssl.certificate-location",
        "ssl.key-location",
        "ssl.key-password",
    )
)


@dataclass(frozen=True)
class RegistryOptions:
    """The parsed options of a schema registry.

    `urls` are without credentials and tried in order; `subject` has `{topic}` for the topic's name.

    `basic_auth` is "user:password". The `ssl_` entries are paths of PEM files. No text of this class shows a
    secret.
    """

    urls: tuple[str, ...]
    subject: str = "{topic}-value"
    basic_auth: str | None = field(default=None, repr=False)
    bearer_token: str | None = field(default=None, repr=False)
    timeout_ms: int = 10_000
    retries: int = 5
    ssl_ca_location: str | None = None
    ssl_certificate_location: str | None = None
    ssl_key_location: str | None = None
    ssl_key_password: str | None = field(default=None, repr=False)

    @staticmethod
    def parse(options: Mapping[str, str]) -> RegistryOptions:
        """The options by name. Contacts no server.

        Raises InvalidOptionError for an unknown name or an invalid value.
        """
        check_option_names(options, _NAMES, "the schema registry")
        given = {name[len(PREFIX) :]: value for name, value in options.items()}
        urls = [text.strip().rstrip("/") for text in given.get("url", "").split(",") if text.strip()]
        if not urls:
            raise InvalidOptionError(
                f"{PREFIX}url is missing; give the registry's address, like http://registry:8081"
            )
        basic_auth = given.get("basic-auth")
        clean = []
        for url in urls:
            parts = _split(url)
            if parts.username is not None:
                basic_auth = basic_auth or f"{unquote(parts.username)}:{unquote(parts.password or '')}"
            clean.append(parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl())
        if basic_auth is not None and ":" not in basic_auth:
            raise InvalidOptionError(f"{PREFIX}basic-auth must look like user:password")
        if basic_auth is not None and "bearer-token" in given:
            raise InvalidOptionError(f"give either {PREFIX}basic-auth or {PREFIX}bearer-token")
        if "ssl.key-location" in given and "ssl.certificate-location" not in given:
            raise InvalidOptionError(f"{PREFIX}ssl.key-location needs {PREFIX}ssl.certificate-location")
        return RegistryOptions(
            urls=tuple(clean),
            subject=given.get("subject", "{topic}-value"),
            basic_auth=basic_auth,
            bearer_token=given.get("bearer-token"),
            timeout_ms=_count(given, "timeout-ms", 10_000, least=1),
            retries=_count(given, "retries", 5, least=0),
            ssl_ca_location=given.get("ssl.ca-location"),
            ssl_certificate_location=given.get("ssl.certificate-location"),
            ssl_key_location=given.get("ssl.key-location"),
            ssl_key_password=given.get("ssl.key-password"),
        )

    @property
    def credentials_in_the_open(self) -> str:
        """The warning for a password or token that is sent without TLS; else empty."""
        plain = [url for url in self.urls if url.lower().startswith("http:")]
        if not plain or (self.basic_auth is None and self.bearer_token is None):
            return ""
        what = "the password" if self.basic_auth is not None else "the token"
        return (
            f"{what} of the schema registry is sent to {', '.join(plain)} without TLS, where others can read "
            "it; use https"
        )

    def subject_of(self, topic: str) -> str:
        """The subject that holds the schemas of the topic's values."""
        return self.subject.replace("{topic}", topic)


def _split(url: str) -> SplitResult:
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError:
        parts = urlsplit("")
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise InvalidOptionError(
            f"{PREFIX}url holds something that is not an address like http://registry:8081"
        )
    return parts


def _count(given: Mapping[str, str], name: str, default: int, *, least: int) -> int:
    text = given.get(name)
    if text is None:
        return default
    if not text.strip().isdigit() or int(text) < least:
        raise InvalidOptionError(f"{PREFIX}{name} is '{text}'; it must be a whole number of at least {least}")
    return int(text)


def without_registry(options: Mapping[str, str]) -> tuple[dict[str, str], dict[str, str]]:
    """A format's own options, and those of the registry."""
    registry = {name: value for name, value in options.items() if name.startswith(PREFIX)}
    return {name: value for name, value in options.items() if name not in registry}, registry
