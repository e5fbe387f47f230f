"""Client of a schema registry: schemas by id, and a topic's latest one (Confluent's REST API).

Used on the driver for a table's schema, and on the executors for the ids in records. A schema never changes
under its id, so each is fetched once per process. Invariant: the schemas that a schema refers to come with
it, each text after those that it needs itself. Messages name the address and the id, never a credential.
Records may be damaged and name any id, and any server may answer: how much is requested, read and remembered
is bounded.
"""

from __future__ import annotations

import base64
import contextlib
import json
import logging
import ssl
import threading
from collections import deque
from dataclasses import dataclass
from functools import lru_cache
from http.client import HTTPException, HTTPMessage
from typing import IO, Any
from urllib.error import HTTPError, URLError
from urllib.parse import quote
from urllib.request import HTTPRedirectHandler, HTTPSHandler, OpenerDirector, Request, build_opener

from streamlake import clock
from streamlake.decode.avro.avro_schema import AvroType, parse_avro_schema
from streamlake.decode.registry.registry_options import PREFIX, RegistryOptions
from streamlake.errors import FeatureUnsupportedError, InvalidOptionError, SourceError

_LOG = logging.getLogger(__name__)
_FIRST_WAIT_SECONDS = 0.2
_LONGEST_WAIT_SECONDS = 5.0
_TRY_AGAIN = (408, 425, 429, 500, 502, 503, 504)
_SHOWN = 200
_MOST_BYTES = 16 << 20
_MOST_BYTES_OF_REFUSALS = 64 << 10
_MOST_REFERENCES = 200
_MOST_IN_VAIN = 100
_IN_VAIN_SECONDS = 60.0
_NEAR = 1_000
"""How far an unknown id may be above the greatest known one to be requested after many failed requests."""


class UnknownSchemaError(Exception):
    """The registry has no schema of this id or subject; the message names it."""


@dataclass(frozen=True)
class RegisteredSchema:
    """A schema of the registry.

    `kind` is AVRO, JSON or PROTOBUF; `references` are (name, text), those needed first.
    """

    name: str
    kind: str
    text: str
    references: tuple[tuple[str, str], ...] = ()

    @property
    def avro(self) -> AvroType:
        """The parsed Avro schema.

        Raises FeatureUnsupportedError for another kind, InvalidOptionError for an invalid schema.
        """
        self.require("AVRO")
        return parse_avro_schema(self.text, self.name, [text for _, text in self.references])

    def require(self, kind: str) -> None:
        """Raises FeatureUnsupportedError unless the schema is of this kind."""
        if self.kind != kind:
            formats = {"AVRO": "format: confluent-avro", "JSON": "format: confluent-json"}
            advice = (
                f"use '{formats[self.kind]}'" if self.kind in formats else "send Avro, JSON Schema or JSON"
            )
            raise FeatureUnsupportedError(
                f"{self.name} is of the kind {self.kind}, and the format asks for {kind}; {advice}"
            )


class SchemaRegistry:
    """One registry, at one or several addresses. Safe to use from several threads."""

    def __init__(self, options: RegistryOptions) -> None:
        self._options = options
        self._opener: OpenerDirector | None = None
        self._by_id: dict[int, RegisteredSchema] = {}
        self._by_version: dict[tuple[str, int], Any] = {}
        self._in_vain: deque[float] = deque(maxlen=_MOST_IN_VAIN)
        self._greatest = 0
        self._lock = threading.Lock()

    def by_id(self, schema_id: int) -> RegisteredSchema:
        """The schema of an id.

        Raises UnknownSchemaError, SourceError when the registry does not answer, and InvalidOptionError for
        references that lead nowhere.
        """
        with self._lock:
            if schema_id not in self._by_id:
                what = f"the schema {schema_id} of the registry"
                self._require_worth_asking(schema_id, what)
                try:
                    found = self._get(f"/schemas/ids/{schema_id}", what)
                except UnknownSchemaError:
                    self._in_vain.append(clock.monotonic())
                    raise
                self._greatest = max(self._greatest, schema_id)
                self._by_id[schema_id] = self._registered(found, what)
            return self._by_id[schema_id]

    def _require_worth_asking(self, schema_id: int, what: str) -> None:
        """Limits requests for unknown ids.

        Ids count up from 1, and damaged records carry any number. After many failed requests in a short time,
        only plausible ids are requested.
        """
        many = len(self._in_vain) == _MOST_IN_VAIN
        if not many or clock.monotonic() - self._in_vain[0] > _IN_VAIN_SECONDS:
            return
        if schema_id > self._greatest + _NEAR:
            raise UnknownSchemaError(
                f"{what} was not asked for: {_MOST_IN_VAIN} ids of the last {_IN_VAIN_SECONDS:.0f} seconds "
                f"are not there, and this one is far beyond the greatest that is ({self._greatest}); the "
                "record is damaged, or belongs to another registry"
            )

    def latest(self, subject: str) -> RegisteredSchema:
        """The newest schema of a subject. Raises UnknownSchemaError, SourceError."""
        with self._lock:
            what = f"the latest schema of the subject {subject} of the registry"
            found = self._get(f"/subjects/{quote(subject, safe='')}/versions/latest", what)
            if isinstance(found, dict) and isinstance(found.get("id"), int):
                self._greatest = max(self._greatest, found["id"])
            return self._registered(found, what)

    def subject_of(self, topic: str) -> str:
        """The subject that holds the schemas of the topic's values."""
        return self._options.subject_of(topic)

    def _registered(self, found: Any, what: str) -> RegisteredSchema:
        if not isinstance(found, dict) or not isinstance(found.get("schema"), str):
            raise SourceError(
                f"{what}: {self._options.urls[0]} answered without a schema; is it a schema registry?"
            )
        references: dict[str, str] = {}
        self._follow(found, references, what, ())
        return RegisteredSchema(
            what, found.get("schemaType") or "AVRO", found["schema"], tuple(references.items())
        )

    def _follow(
        self, found: Any, references: dict[str, str], what: str, above: tuple[tuple[str, int], ...]
    ) -> None:
        """Adds the schemas that `found` refers to, those needed first; `above` are those that led to it."""
        for name, subject, version in _references(found, what):
            if name in references:
                continue
            at = (subject, version)
            if at in above:
                raise InvalidOptionError(
                    f"{what} cannot be used: version {version} of {subject} refers to itself"
                )
            if len(above) + len(references) >= _MOST_REFERENCES:
                raise InvalidOptionError(
                    f"{what} cannot be used: it refers to more than {_MOST_REFERENCES} schemas"
                )
            if at not in self._by_version:
                self._by_version[at] = self._get(
                    f"/subjects/{quote(subject, safe='')}/versions/{version}",
                    f"{what} refers to version {version} of {subject}, which",
                )
            referred = self._by_version[at]
            if not isinstance(referred, dict) or not isinstance(referred.get("schema"), str):
                raise InvalidOptionError(
                    f"{what} cannot be used: version {version} of {subject} has no schema"
                )
            self._follow(referred, references, what, (*above, at))
            references[name] = referred["schema"]

    def _get(self, path: str, what: str) -> Any:
        """The JSON that one of the addresses answers with."""
        failures: dict[str, str] = {}
        for attempt in range(self._options.retries + 1):
            if attempt:
                clock.sleep(min(_LONGEST_WAIT_SECONDS, _FIRST_WAIT_SECONDS * 2 ** (attempt - 1)))
            for url in self._options.urls:
                try:
                    return self._ask(url + path)
                except HTTPError as error:
                    problem, is_registry = _reported(error)
                    if error.code == 404 and is_registry:
                        raise UnknownSchemaError(f"{what} is not there ({url}: {problem})") from error
                    if error.code not in _TRY_AGAIN:
                        raise SourceError(
                            f"{what}: {url} refused to give it: {problem}. {_ADVICE}"
                        ) from error
                    failures[url] = problem
                except (OSError, HTTPException) as error:
                    reason = error.reason if isinstance(error, URLError) else error
                    if isinstance(reason, ssl.SSLCertVerificationError):
                        raise SourceError(f"{what}: {url} is not trusted: {reason}. {_ADVICE}") from error
                    failures[url] = str(reason) or type(reason).__name__
                except (ValueError, RecursionError) as error:
                    raise SourceError(
                        f"{what}: {url} does not answer in JSON; is it a schema registry?"
                    ) from error
        problems = "; ".join(f"{url}: {problem}" for url, problem in failures.items())
        raise SourceError(
            f"{what} cannot be fetched after {self._options.retries + 1} attempts: {problems}. {_ADVICE}"
        )

    def _ask(self, url: str) -> Any:
        request = Request(url, headers={"Accept": "application/vnd.schemaregistry.v1+json, application/json"})
        options = self._options
        # These headers are not sent on to a redirect's target.
        if options.basic_auth is not None:
            encoded = base64.b64encode(options.basic_auth.encode()).decode()
            request.add_unredirected_header("Authorization", f"Basic {encoded}")
        elif options.bearer_token is not None:
            request.add_unredirected_header("Authorization", f"Bearer {options.bearer_token}")
        if self._opener is None:
            self._opener = build_opener(HTTPSHandler(context=_tls(options)), _Redirects())
        with self._opener.open(request, timeout=options.timeout_ms / 1000) as answer:
            content = answer.read(_MOST_BYTES + 1)
        if len(content) > _MOST_BYTES:
            raise SourceError(
                f"{url} answers with more than {_MOST_BYTES >> 20} MiB, which is not a schema; is it a "
                f"schema registry? {_ADVICE}"
            )
        return json.loads(content)


class _Redirects(HTTPRedirectHandler):
    """Follows redirects, but never from TLS to plain HTTP, where anyone in between could serve any schema."""

    def redirect_request(
        self, req: Request, fp: IO[bytes], code: int, msg: str, headers: HTTPMessage, newurl: str
    ) -> Request | None:
        if req.type == "https" and not newurl.lower().startswith("https:"):
            raise SourceError(
                f"the schema registry at {req.host} redirects from https to {newurl.partition(':')[0]}, "
                f"which is not followed. {_ADVICE}"
            )
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def _references(found: Any, what: str) -> list[tuple[str, str, int]]:
    """(name, subject, version) of the schemas that a schema refers to."""
    try:
        return [
            (str(each["name"]), str(each["subject"]), int(each["version"]))
            for each in found.get("references") or ()
        ]
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise InvalidOptionError(f"{what} cannot be used: its references have an unknown form") from error


@lru_cache(maxsize=16)
def schema_registry(options: RegistryOptions) -> SchemaRegistry:
    """This process's client for `options`, which remembers the schemas that it has seen."""
    open_to_all = options.credentials_in_the_open
    if open_to_all:
        _LOG.warning("%s", open_to_all)
    return SchemaRegistry(options)


_ADVICE = f"Look at the registry and at the options {PREFIX}*"


def _tls(options: RegistryOptions) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cafile=options.ssl_ca_location)
        if options.ssl_certificate_location is not None:
            context.load_cert_chain(
                options.ssl_certificate_location,
                options.ssl_key_location,
                lambda: options.ssl_key_password or "",
            )
    except OSError as error:
        raise InvalidOptionError(
            f"the certificates that {PREFIX}ssl.* name cannot be used: {error.strerror or error}"
        ) from error
    return context


def _reported(error: HTTPError) -> tuple[str, bool]:
    """What the registry says about its refusal, on one line, and whether a registry said it."""
    with error:
        body = error.read(_MOST_BYTES_OF_REFUSALS).decode("utf-8", "replace")
    is_registry = False
    with contextlib.suppress(ValueError, KeyError, TypeError, RecursionError):
        content = json.loads(body)
        body = str(content["message"])
        is_registry = "error_code" in content
    return f"HTTP {error.code} {' '.join(body.split())[:_SHOWN] or error.reason}", is_registry
