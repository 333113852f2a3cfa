"""Event streams: every record once, in order, across cuts; alive when silent; no reader is waited for endlessly."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from boki_gateway.testing import running_gateway

if TYPE_CHECKING:
    import aiohttp

    from boki.testing import MemoryCluster
    from boki_gateway.testing import Requester


class Event(NamedTuple):
    id: str
    kind: str
    data: Any


class Stream:
    """Reads one event stream as a browser does."""

    def __init__(self, answer: aiohttp.ClientResponse) -> None:
        self.answer = answer
        self.comments = 0

    async def next(self) -> Event:
        event = await self.next_or_end()
        assert event is not None
        return event

    async def next_or_end(self) -> Event | None:
        """The next event; None at the end of the stream."""
        fields: dict[str, str] = {}
        async for raw in self.answer.content:
            line = raw.decode().rstrip("\n")
            if line.startswith(":"):
                self.comments += 1
            elif line:
                name, _, value = line.partition(": ")
                fields[name] = value
            elif fields:
                return Event(fields.get("id", ""), fields.get("event", ""), msgspec.json.decode(fields["data"]))
        return None


@asynccontextmanager
async def following(
    requester: Requester, headers: dict[str, str] | None = None, **params: str
) -> AsyncIterator[Stream]:
    async with requester.http.get(f"{requester.url}/v1/books/b/events", params=params, headers=headers) as answer:
        assert (answer.status, answer.content_type) == (200, "text/event-stream"), await answer.text()
        yield Stream(answer)


async def test_new_records_come_as_they_are_ordered(requester: Requester) -> None:
    old = await requester.append("b", "old", "t")
    async with following(requester, tag="t", encoding="text") as stream:
        first = await stream.next()
        assert (first.kind, first.data) == ("position", {"position": old})
        assert first.id == old
        await requester.append("b", "other", "u")
        new = await requester.append("b", "new", "t")
        event = await stream.next()
        assert (event.id, event.kind, event.data["seqnum"], event.data["text"]) == (new, "record", new, "new")
        assert stream.answer.headers["Cache-Control"] == "no-store"


async def test_a_cut_stream_goes_on_behind_the_last_event(requester: Requester) -> None:
    seqnums = [await requester.append("b", str(number)) for number in range(600)]
    got: list[str] = []
    headers: dict[str, str] = {}
    while len(got) < len(seqnums):
        async with following(requester, headers, start="0") as stream:
            for _ in range(250):
                event = await stream.next()
                headers = {"Last-Event-ID": event.id}
                if event.kind == "record":
                    got.append(event.id)
                if len(got) == len(seqnums):
                    break
    assert got == seqnums


async def test_what_is_missing_is_an_event(requester: Requester) -> None:
    seqnums = [await requester.append("b", str(number)) for number in range(3)]
    await requester.ask("POST", "/v1/books/b/trim", {"pairs": [{"before": seqnums[1]}]})
    async with following(requester, start=seqnums[0]) as stream:
        kinds = [await stream.next() for _ in range(4)]
    assert [(event.kind, event.id) for event in kinds] == [
        ("position", str(int(seqnums[0]) - 1)),
        ("gap", str(int(seqnums[1]) - 1)),
        ("record", seqnums[1]),
        ("record", seqnums[2]),
    ]


async def test_a_cut_before_the_first_record_loses_none(requester: Requester) -> None:
    async with following(requester) as stream:
        first = await stream.next()
    missed = await requester.append("b", "while away")
    async with following(requester, {"Last-Event-ID": first.id}) as stream:
        await stream.next()
        event = await stream.next()
        assert event.id == missed


async def test_a_silent_stream_says_that_it_is_alive(cluster: MemoryCluster) -> None:
    async with running_gateway(cluster, heartbeat_s=0.01) as requester, following(requester) as stream:
        await stream.next()
        ended = asyncio.ensure_future(stream.next())
        while stream.comments < 3:
            assert not ended.done()
            await asyncio.sleep(0)
        ended.cancel()


async def test_streams_end_when_the_gateway_closes(cluster: MemoryCluster) -> None:
    async with running_gateway(cluster) as requester, following(requester) as stream:
        await stream.next()
        await requester.gateway.close()
        assert await stream.next_or_end() is None


async def test_streams_are_bounded(cluster: MemoryCluster) -> None:
    async with running_gateway(cluster, streams=1) as requester:
        async with following(requester) as stream:
            await stream.next()
            refused = await requester.get("/v1/books/b/events")
            assert (refused.status, refused.body["error"]) == (503, "Overloaded")
        while requester.gateway._parts.admission.streams:
            await asyncio.sleep(0)
        async with following(requester):
            pass


async def test_a_reader_that_takes_nothing_is_cut_off(cluster: MemoryCluster) -> None:
    async with running_gateway(cluster, slow_reader_s=0.2) as requester:
        for _ in range(24):
            await requester.append("b", "x" * 1_000_000)
        address = requester.gateway.address
        reader, writer = await asyncio.open_connection(address.host, address.port, limit=1_024)
        writer.write(b"GET /v1/books/b/events?start=0 HTTP/1.1\r\nHost: localhost\r\n\r\n")
        await reader.readuntil(b"\r\n\r\n")
        admission = requester.gateway._parts.admission
        assert admission.streams == 1
        while admission.streams:
            await asyncio.sleep(0)
        writer.transport.abort()


async def test_what_cannot_begin_is_refused_with_a_status(requester: Requester) -> None:
    reply = await requester.ask("GET", "/v1/books/b/events", headers={"Last-Event-ID": "x"})
    assert (reply.status, reply.body["error"]) == (400, "InvalidArgument")


async def test_a_failure_is_the_last_event(requester: Requester) -> None:
    async with following(requester) as stream:
        await stream.next()
        await requester.client.close()
        event = await stream.next()
        assert (event.kind, event.data["error"], event.data["definite"]) == ("error", "ClosedError", True)
        assert await stream.next_or_end() is None
