"""Requests to one server over connections that are used again. Knows not when to ask, nor what."""

import asyncio
import ssl
from dataclasses import dataclass
from time import perf_counter

from server.load.connection import Connection, Sample
from server.load.prompts import Ask


@dataclass(frozen=True, slots=True)
class Target:
    """Where to: a host, its port, how to speak to it, and the path before /v1."""

    host: str
    port: int
    base: str
    tls: ssl.SSLContext | None
    headers: tuple[tuple[str, str], ...]

    def request(self, method: str, path: str, body: bytes) -> bytes:
        """The bytes of a request."""
        lines = [f"{method} {self.base}{path} HTTP/1.1", f"host: {self.host}:{self.port}"]
        lines += [f"{name}: {value}" for name, value in self.headers]
        lines += ["content-type: application/json", f"content-length: {len(body)}"]
        return "\r\n".join([*lines, "", ""]).encode() + body


class Client:
    """Connections that are used again, and as many as it takes."""

    def __init__(self, target: Target, timeout: float) -> None:
        self._target = target
        self._timeout = timeout
        self._idle: list[Connection] = []

    async def ask(self, ask: Ask, due: float) -> Sample:
        """Send a request and follow its reply; what goes wrong is in the sample."""
        sample = Sample(due)
        await self._exchange("POST", ask.path, ask.body, sample)
        return sample

    async def get(self, path: str, body: bytes | None = None) -> bytes:
        """The body of a plain reply; raises ConnectionError where there is none."""
        sample = Sample(perf_counter())
        reply = await self._exchange("POST" if body else "GET", path, body or b"", sample)
        if sample.error:
            raise ConnectionError(f"{path}: {sample.error} {reply.decode(errors='replace')[:200]}".strip())
        return reply

    def close(self) -> None:
        """Close all connections."""
        while self._idle:
            self._idle.pop().close()

    async def _exchange(self, method: str, path: str, body: bytes, sample: Sample) -> bytes:
        connection = None
        try:
            async with asyncio.timeout(self._timeout):
                connection = await self._connection()
                request = self._target.request(method, path, body)
                try:
                    reply = await connection.start(request, sample)
                except ConnectionError:
                    if not connection.used or sample.times:
                        raise
                    connection = await self._connect()  # an idle one that the server had closed
                    reply = await connection.start(request, sample)
                if connection.open:
                    self._idle.append(connection)
                return reply
        except TimeoutError:
            sample.error = "timeout"
        except ssl.SSLError as error:
            sample.error = f"TLS: {error.reason or error}"
        except ConnectionError as error:
            sample.error = "cut off" if sample.sent else f"no connection: {error.strerror or error}"
        except OSError as error:
            sample.error = f"no connection: {error.strerror or error}"
        sample.ended = perf_counter()
        if connection is not None:
            connection.close()
        return b""

    async def _connection(self) -> Connection:
        while self._idle:
            connection = self._idle.pop()
            if connection.open:
                return connection
        return await self._connect()

    async def _connect(self) -> Connection:
        target = self._target
        loop = asyncio.get_running_loop()
        _, connection = await loop.create_connection(Connection, target.host, target.port, ssl=target.tls)
        return connection
