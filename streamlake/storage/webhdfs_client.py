"""Requests of WebHDFS, Hadoop's HTTP interface to HDFS, and of HttpFS, which speaks the same.

Each request has a connection of its own, so a client may be used in any thread and in forked children. Raises
OSError only; its text names what the name node said. What may be sent twice is sent again after an answer
that was lost: a caller of `rename` has to find out itself whether the first one was done.
"""

from __future__ import annotations

import errno
import http.client
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

from streamlake import clock

_ROOT = "/webhdfs/v1"
_TIMEOUT_S = 60.0
_PAUSES_S = (0.2, 0.5, 1.0, 2.0)
"""Between tries of a request that had no answer, or whose answer was that of a busy server."""
_DATA = {"Content-Type": "application/octet-stream"}
_ERRNO = {
    "FileNotFoundException": errno.ENOENT,
    "FileAlreadyExistsException": errno.EEXIST,
    "AccessControlException": errno.EACCES,
    "DSQuotaExceededException": errno.EDQUOT,
    "NSQuotaExceededException": errno.EDQUOT,
}
_PASSING = ("StandbyException", "RetriableException", "SafeModeException", "LeaseExpiredException")
"""What another name node, or the same one later, may answer otherwise."""
_LONGEST_REASON = 300
HANDSHAKE = "the name node wants Kerberos, which needs libhdfs: install it and set HADOOP_HOME and CLASSPATH"


class _AgainError(OSError):
    """No answer, or one that may be another a moment later."""


@dataclass(frozen=True)
class FileStatus:
    """What the name node knows of a path; `name` is "" but in a listing."""

    name: str
    is_file: bool
    size: int
    modified_ms: int

    @classmethod
    def parse(cls, found: Mapping[str, Any]) -> FileStatus:
        """The status in an answer."""
        kind = found["type"] == "FILE"
        return cls(found["pathSuffix"], kind, int(found["length"]), int(found["modificationTime"]))


@dataclass(frozen=True)
class WebHdfsClient:
    """The HTTP addresses of one HDFS, of which the first active one answers, and the user who asks."""

    addresses: tuple[str, ...]
    user: str

    def status(self, path: str) -> FileStatus:
        """Raises FileNotFoundError."""
        return FileStatus.parse(self._asked("GET", path, "GETFILESTATUS")["FileStatus"])

    def listed(self, path: str) -> list[FileStatus]:
        """What is directly in a directory. Raises FileNotFoundError."""
        found = self._asked("GET", path, "LISTSTATUS")["FileStatuses"]["FileStatus"]
        return [status for status in map(FileStatus.parse, found) if status.name]

    def read(self, path: str, start: int, count: int) -> bytes:
        """`count` bytes, all of which the file must have. Raises OSError when fewer come."""
        if not count:
            return b""
        data = self._sent("GET", path, {"op": "OPEN", "offset": start, "length": count})
        if len(data) != count:
            raise OSError(errno.EIO, f"{len(data)} bytes came for a range of {count}")
        return data

    def write(self, path: str, data: bytes) -> None:
        """Write a file, which shows while it is being written."""
        self._sent("PUT", path, {"op": "CREATE", "overwrite": "true"}, data)

    def upload(self, path: str) -> http.client.HTTPConnection:
        """The data node's connection, to which the chunks of a new file are sent; see `chunk` and `ended`."""
        target = self._redirected("PUT", path, {"op": "CREATE", "overwrite": "true"})
        connection = _connection(target)
        parts = urlsplit(target)
        connection.putrequest("PUT", f"{parts.path}?{parts.query}")
        for name, value in {**_DATA, "Transfer-Encoding": "chunked"}.items():
            connection.putheader(name, value)
        connection.endheaders()
        return connection

    def rename(self, path: str, target: str, *, overwrite: bool = False) -> bool:
        """Whether a file was renamed. False, too, where a repeated request finds that the first was done.

        Without `overwrite` an existing target stays. HttpFS does not know `overwrite`.
        """
        given = {"destination": target, **({"renameoptions": "OVERWRITE"} if overwrite else {})}
        return bool(self._asked("PUT", path, "RENAME", **given).get("boolean", True))

    def delete(self, path: str) -> None:
        """Remove a file; a missing one is no error."""
        self._asked("DELETE", path, "DELETE", recursive="false")

    def _asked(self, method: str, path: str, operation: str, **parameters: str) -> dict[str, Any]:
        answer = self._sent(method, path, {"op": operation, **parameters})
        try:
            return json.loads(answer) if answer.strip() else {}
        except ValueError:
            raise OSError(errno.EIO, f"an answer that is not WebHDFS's: {answer[:100]!r}") from None

    def _sent(
        self, method: str, path: str, parameters: Mapping[str, Any], data: bytes | None = None
    ) -> bytes:
        """The answer, of the server that the name node names where data is read or written."""
        answer: bytes = self._tried(lambda address: self._followed(address, method, path, parameters, data))
        return answer

    def _redirected(self, method: str, path: str, parameters: Mapping[str, Any]) -> str:
        def target(address: str) -> str:
            status, headers, body = _exchanged(method, self._url(address, path, parameters))
            if status != http.HTTPStatus.TEMPORARY_REDIRECT:
                raise _refusal(status, body)
            return headers["Location"]

        found: str = self._tried(target)
        return found

    def _followed(
        self, address: str, method: str, path: str, parameters: Mapping[str, Any], data: bytes | None
    ) -> bytes:
        status, headers, body = _exchanged(method, self._url(address, path, parameters))
        if status == http.HTTPStatus.TEMPORARY_REDIRECT:
            status, headers, body = _exchanged(method, headers["Location"], data, _DATA)
        if status >= http.HTTPStatus.MULTIPLE_CHOICES:
            raise _refusal(status, body)
        return body

    def _tried(self, action: Any) -> Any:
        """The answer of the first address that gives one; asked again after a while."""
        for pause in (*_PAUSES_S, None):
            for last, address in _marked(self.addresses):
                try:
                    return action(address)
                except _AgainError as error:
                    if last and pause is None:
                        raise OSError(error.errno, error.strerror) from error
            clock.sleep(pause or 0)
        raise AssertionError("unreachable")

    def _url(self, address: str, path: str, parameters: Mapping[str, Any]) -> str:
        return f"{address}{_ROOT}{quote(path)}?{urlencode({'user.name': self.user, **parameters})}"


def chunk(connection: http.client.HTTPConnection, data: bytes) -> None:
    """Send a part of a new file."""
    connection.send(b"%x\r\n%b\r\n" % (len(data), data))


def ended(connection: http.client.HTTPConnection) -> None:
    """End a new file, which is complete then. Raises OSError when it is not."""
    try:
        connection.send(b"0\r\n\r\n")
        answer = connection.getresponse()
        body = answer.read()
    except http.client.HTTPException as error:
        raise OSError(errno.EIO, f"no answer of the data node: {error!r}") from error
    finally:
        connection.close()
    if answer.status >= http.HTTPStatus.MULTIPLE_CHOICES:
        raise _refusal(answer.status, body)


def _marked(addresses: tuple[str, ...]) -> Iterator[tuple[bool, str]]:
    return ((number == len(addresses), address) for number, address in enumerate(addresses, 1))


def _connection(url: str) -> http.client.HTTPConnection:
    parts = urlsplit(url)
    secure = parts.scheme == "https"
    kind = http.client.HTTPSConnection if secure else http.client.HTTPConnection
    return kind(parts.netloc, timeout=_TIMEOUT_S)


def _exchanged(
    method: str, url: str, data: bytes | None = None, headers: Mapping[str, str] | None = None
) -> tuple[int, http.client.HTTPMessage, bytes]:
    connection = _connection(url)
    parts = urlsplit(url)
    try:
        connection.request(method, f"{parts.path}?{parts.query}", body=data, headers=dict(headers or {}))
        answer = connection.getresponse()
        return answer.status, answer.headers, answer.read()
    except (OSError, http.client.HTTPException) as error:
        text = f"{parts.scheme}://{parts.netloc} does not answer ({error or type(error).__name__})"
        raise _AgainError(errno.EIO, text) from error
    finally:
        connection.close()


def _refusal(status: int, body: bytes) -> OSError:
    """What an answer other than a success says."""
    try:
        said = json.loads(body)["RemoteException"]
        kind, text = str(said["exception"]), str(said["message"])
    except (ValueError, KeyError, TypeError):
        kind, text = "", body.decode(errors="replace").strip() or http.client.responses.get(status, "")
    if status == http.HTTPStatus.UNAUTHORIZED:
        return OSError(errno.EACCES, HANDSHAKE)
    reason = text.partition("\n")[0][:_LONGEST_REASON]
    if any(each in (kind, text.partition(":")[0].rpartition(".")[2]) for each in _PASSING) or status >= 500:
        return _AgainError(errno.EIO, f"{kind}: {reason}" if kind else reason)
    return OSError(_ERRNO.get(kind, errno.EIO), reason if kind in _ERRNO else f"{kind} {reason}".strip())
