"""AWS's services for tests, by moto in this process on 127.0.0.1: Glue, DynamoDB and S3 on one port.

Moto's Glue takes any VersionId, and its DynamoDB lets another request in between a condition and the change. AWS does
neither, and so this refuses a VersionId that is not the current one, and does one request at a time. Faults: `fault` is called around every request of the services with the request's action, before
and after it is done.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from moto.core.exceptions import JsonRESTError
from moto.core.responses import BaseResponse
from moto.glue.responses import GlueResponse
from moto.moto_api._internal import moto_api_backend
from moto.server import ThreadedMotoServer

KEYS = {
    "client.region": "us-east-1",
    "client.access-key-id": "test",
    "client.secret-access-key": "test",
}


class AwsServices:
    """The running services. `glue` and `dynamodb` are the properties of catalogs, without a warehouse."""

    def __init__(self, port: int) -> None:
        self.endpoint = f"http://127.0.0.1:{port}"
        self.glue = {"type": "glue", "glue.endpoint": self.endpoint, "glue.max-retries": "2", **KEYS}
        self.dynamodb = {"type": "dynamodb", "dynamodb.endpoint": self.endpoint, **KEYS}
        self.s3 = {"s3.endpoint": self.endpoint, "s3.access-key-id": "test", "s3.secret-access-key": "test"}
        self.actions: list[str] = []
        """Every action that was asked for, such as `UpdateTable`."""
        self.fault: Callable[[str, bool], None] | None = None
        """Called with the action, and whether it is done; what it raises is an answer 500."""

    def reset(self) -> None:
        """Forget all tables, items and objects."""
        moto_api_backend.reset()
        self.actions.clear()
        self.fault = None


class LostAnswerError(Exception):
    """The request is answered by a 500."""


@contextmanager
def aws_services() -> Iterator[AwsServices]:
    update, call = GlueResponse.update_table, BaseResponse.call_action
    turn = threading.Lock()

    def conditional_update(response: Any) -> Any:
        wanted = response.parameters.get("VersionId")
        name = response.parameters["TableInput"]["Name"]
        table = response.glue_backend.get_table(response.parameters["DatabaseName"], name)
        if wanted is not None and wanted != table.as_dict()["VersionId"]:
            raise JsonRESTError("ConcurrentModificationException", f"version {wanted} is not current")
        return update(response)

    def watched(response: Any) -> Any:
        action = response._get_action()
        services.actions.append(action)
        try:
            if services.fault is not None:
                services.fault(action, False)
            with turn:
                done = call(response)
            if services.fault is not None:
                services.fault(action, True)
        except LostAnswerError:
            return 500, {}, "{}"
        return done

    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    GlueResponse.update_table = conditional_update
    BaseResponse.call_action = watched
    server.start()
    services = AwsServices(server.get_host_and_port()[1])
    try:
        yield services
    finally:
        GlueResponse.update_table, BaseResponse.call_action = update, call
        server.stop()
