"""The client of an application's services: it sends each request until the result is definite.

Services are killed while the client runs. A request without an answer is sent again to the next service, under the same id, so that it
happens once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from time import perf_counter
from types import TracebackType
from typing import Any, Final, Self

import aiohttp
import msgspec

from examples.apps.application import Answer, Request

ATTEMPT_S: Final = 30.0
GIVE_UP_S: Final = 300.0
"""Longer than any fault lasts, on a busy machine too: only a request that hangs is given up."""
RETRY_S: Final = 0.05
"""Pause after the first attempt; it grows with each attempt, up to ten times as long."""


class NoAnswer(Exception):
    """A request got no definite result within GIVE_UP_S, longer than any fault lasts."""


class ServiceClient:
    """HTTP client of the services of one application; entered with `async with`.

    Attributes:
        failed: number of attempts without a definite result so far.
    """

    def __init__(self, addresses: Sequence[str]) -> None:
        self.failed = 0
        self._addresses: Final = list(addresses)
        self._turn = 0
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        connector = aiohttp.TCPConnector(limit=0)
        self._session = aiohttp.ClientSession(connector=connector, timeout=aiohttp.ClientTimeout(total=ATTEMPT_S))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._session is not None
        await self._session.close()

    async def ask(self, request: Request, *, since: float | None = None) -> Answer:
        """Send a request until its result is definite.

        Args:
            request: what to ask for.
            since: when the request was due, by `perf_counter`; its time counts from there. By default it is due now.

        Raises:
            NoAnswer: no attempt within GIVE_UP_S got a definite result.
        """
        began = perf_counter() if since is None else since
        body = msgspec.json.encode({"id": request.id, "args": request.args})
        attempts = 0
        while perf_counter() - began < GIVE_UP_S:
            attempts += 1
            self._turn += 1
            found = await self._attempt(
                f"{self._addresses[self._turn % len(self._addresses)]}/{request.operation}", body
            )
            if found is not None:
                return Answer(request, found["value"], found["refused"], perf_counter() - began, attempts)
            self.failed += 1
            await asyncio.sleep(RETRY_S * min(attempts, 10))
        raise NoAnswer(f"{request.operation} {request.id} has no result after {attempts} attempts")

    async def _attempt(self, url: str, body: bytes) -> dict[str, Any] | None:
        assert self._session is not None
        try:
            async with self._session.post(url, data=body) as answer:
                data = await answer.read()
                if answer.status == 200:
                    return msgspec.json.decode(data, type=dict[str, Any])
                assert answer.status == 503, f"expected 200 or 503, found {answer.status}: {data!r}"
        except (aiohttp.ClientError, TimeoutError, OSError):
            pass  # the service was killed or ends: the next attempt asks the next service
        return None
