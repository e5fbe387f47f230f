"""A REST catalog in this process: the routes that PyIceberg's client needs, served on 127.0.0.1 from a SQL catalog.

`lose_next` makes the next commit's answer get lost: the connection is closed without a word, after the commit was done
(`arrives=True`) or without it. `go_away` stops the server for a while, and `away_after_loss` does that with the lost answer.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote

from pydantic import TypeAdapter
from pyiceberg.exceptions import (
    CommitFailedException,
    NamespaceAlreadyExistsError,
    NamespaceNotEmptyError,
    NoSuchNamespaceError,
    NoSuchTableError,
    TableAlreadyExistsError,
)
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.sorting import SortOrder
from pyiceberg.table.update import TableRequirement, TableUpdate


class RestServer:
    """Serves the tables of `client`, a PyIceberg catalog, at `uri`."""

    def __init__(self, client: Any) -> None:
        self.client = client
        self.lose_next: bool | None = None
        """What happens to the next commit: None (it is answered), True (done, not answered), False (neither)."""
        self.lost = 0
        self.away_after_loss = 0.0
        """For how many seconds the server is away once an answer was lost."""
        self.config: dict[str, str] = {}
        """What is sent along with every table."""
        self.credentials: list[dict[str, Any]] = []
        """Storage credentials that are sent along: a prefix and a configuration each."""
        self.defaults: dict[str, str] = {}
        """What is sent to every client as it starts."""
        self.secret: str | None = None
        """The client secret that a token is given for; without it nobody is asked for one."""
        self.token: str | None = None
        """The token that is valid at present."""
        self.requests: list[str] = []
        self.answer_next: int | None = None
        """The status that the next commit is answered with instead of being done."""
        self.message = "out of order"
        """What that answer says."""
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                server.handle(self, None)

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers.get("content-length", 0)))
                if self.path.endswith("/oauth/tokens"):
                    return server.give_token(self, body.decode())
                server.handle(self, json.loads(body or b"{}"))

            def do_DELETE(self) -> None:
                server.handle(self, None)

            def do_HEAD(self) -> None:
                server.handle(self, None)

            def log_message(self, *_: Any) -> None:
                pass

        self._handler = Handler
        self._returning: threading.Thread | None = None
        self._listen(0)
        self.uri = f"http://127.0.0.1:{self._http.server_port}"

    def _listen(self, port: int) -> None:
        self._http = ThreadingHTTPServer(("127.0.0.1", port), self._handler)
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.02,), daemon=True)

    def go_away(self, seconds: float) -> None:
        """Listen no more, and again on the same port after so many seconds; does not wait for that."""
        self._http.shutdown()
        self._http.server_close()

        def come_back() -> None:
            time.sleep(seconds)
            self._listen(self._http.server_port)
            self._thread.start()

        self._returning = threading.Thread(target=come_back)
        self._returning.start()

    @contextmanager
    def running(self) -> Iterator[RestServer]:
        self._thread.start()
        try:
            yield self
        finally:
            if self._returning is not None:
                self._returning.join()
            self._http.shutdown()
            self._http.server_close()
            self._thread.join()

    def handle(self, request: BaseHTTPRequestHandler, body: Any) -> None:
        parts = request.path.partition("?")[0].strip("/").split("/")[1:]
        self.requests.append(f"{request.command} {'/'.join(parts)}")
        if self.secret is not None and request.headers.get("Authorization") != f"Bearer {self.token}":
            return _refuse(request, 401, "NotAuthorizedException", PermissionError("the token has expired"))
        if parts == ["config"]:
            return _answer(request, 200, {"defaults": self.defaults, "overrides": {}})
        try:
            if self._administer(request, [unquote(part).replace("\x1f", ".") for part in parts], body):
                return None
            if body is None:
                return _answer(request, 200, self._loaded(self.client.load_table(f"{parts[1]}.{parts[3]}")))
            if self.answer_next is not None:
                code, self.answer_next = self.answer_next, None
                return _refuse(request, code, "ServerError", RuntimeError(self.message))
            return self._commit(request, f"{parts[1]}.{parts[3]}", body)
        except NoSuchTableError as error:
            return _refuse(request, 404, "NoSuchTableException", error)
        except NoSuchNamespaceError as error:
            return _refuse(request, 404, "NoSuchNamespaceException", error)
        except (TableAlreadyExistsError, NamespaceAlreadyExistsError) as error:
            return _refuse(request, 409, "AlreadyExistsException", error)
        except NamespaceNotEmptyError as error:
            return _refuse(request, 409, "NamespaceNotEmptyException", error)
        except CommitFailedException as error:
            return _refuse(request, 409, "CommitFailedException", error)

    def _administer(self, request: BaseHTTPRequestHandler, parts: list[str], body: Any) -> bool:
        """Answer what is neither a load nor a commit; False for these two."""
        client, method, query = self.client, request.command, parse_qs(request.path.partition("?")[2])
        answer: Any = {}
        match parts:
            case ["namespaces"] if method == "GET":
                parent = query.get("parent", [""])[0].replace("\x1f", ".")
                found = client.list_namespaces(parent) if parent else client.list_namespaces()
                answer = {"namespaces": [list(each) for each in found]}
            case ["namespaces"]:
                client.create_namespace(tuple(body["namespace"]), body.get("properties") or {})
                answer = {"namespace": body["namespace"], "properties": body.get("properties") or {}}
            case ["namespaces", name] if method == "DELETE":
                client.drop_namespace(name)
                answer = None
            case ["namespaces", name]:
                properties = client.load_namespace_properties(name)
                answer = {"namespace": name.split("."), "properties": properties}
            case ["namespaces", name, "properties"]:
                done = client.update_namespace_properties(name, set(body["removals"]), body["updates"])
                answer = {"removed": done.removed, "updated": done.updated, "missing": done.missing}
            case ["namespaces", name, "tables"] if method == "GET":
                found = client.list_tables(name)
                client.load_namespace_properties(name)
                answer = {"identifiers": [{"namespace": list(each[:-1]), "name": each[-1]} for each in found]}
            case ["namespaces", name, "tables"]:
                answer = self._loaded(self._created(f"{name}.{body['name']}", body))
            case ["namespaces", name, "register"]:
                answer = self._loaded(
                    client.register_table(f"{name}.{body['name']}", body["metadata-location"])
                )
            case ["namespaces", name, "tables", table] if method == "DELETE":
                purged = query.get("purgeRequested", ["False"])[0].lower() == "true"
                (client.purge_table if purged else client.drop_table)(f"{name}.{table}")
                answer = None
            case ["tables", "rename"]:
                names = [
                    ".".join((*body[end]["namespace"], body[end]["name"]))
                    for end in ("source", "destination")
                ]
                client.rename_table(*names)
                answer = None
            case _:
                return False
        _answer(request, 204 if answer is None or method == "HEAD" else 200, answer)
        return True

    def _created(self, name: str, body: Any) -> Any:
        return self.client.create_table(
            name,
            Schema.model_validate(body["schema"]),
            partition_spec=PartitionSpec.model_validate(body["partition-spec"]),
            sort_order=SortOrder.model_validate(body["write-order"]),
            properties=body["properties"],
        )

    def _commit(self, request: BaseHTTPRequestHandler, name: str, body: Any) -> None:
        lose, self.lose_next = self.lose_next, None
        answer = None
        if lose is not False:
            requirements = tuple(
                TypeAdapter(TableRequirement).validate_python(each) for each in body["requirements"]
            )
            updates = tuple(TypeAdapter(TableUpdate).validate_python(each) for each in body["updates"])
            table = self.client.load_table(name)
            if not table.metadata.snapshots:
                # PyIceberg refuses to look for a branch there, Iceberg's servers do not: there is none.
                requirements = tuple(each for each in requirements if not _wants_no_ref(each))
            answer = self._loaded(self.client.commit_table(table, requirements, updates))
        if lose is None:
            return _answer(request, 200, answer)
        self.lost += 1
        if self.away_after_loss:
            self.go_away(self.away_after_loss)
        request.close_connection = True
        return None

    def give_token(self, request: BaseHTTPRequestHandler, form: str) -> None:
        if f"client_secret={self.secret}" not in form.split("&"):
            return _answer(request, 401, {"error": "invalid_client"})
        self.token = f"token-{len(self.requests)}"
        return _answer(request, 200, {"access_token": self.token, "token_type": "bearer", "expires_in": 3600})

    def _loaded(self, table: Any) -> Any:
        return {
            "metadata-location": table.metadata_location,
            "metadata": json.loads(table.metadata.model_dump_json()),
            "config": self.config,
            "storage-credentials": self.credentials,
        }


def _wants_no_ref(requirement: Any) -> bool:
    return getattr(requirement, "ref", "main") != "main" and requirement.snapshot_id is None


def _answer(request: BaseHTTPRequestHandler, code: int, obj: Any) -> None:
    data = b"" if obj is None or request.command == "HEAD" else json.dumps(obj).encode()
    request.send_response(code)
    request.send_header("content-type", "application/json")
    request.send_header("content-length", str(len(data)))
    request.end_headers()
    request.wfile.write(data)


def _refuse(request: BaseHTTPRequestHandler, code: int, kind: str, error: Exception) -> None:
    _answer(request, code, {"error": {"message": str(error), "type": kind, "code": code}})
