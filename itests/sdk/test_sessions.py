"""Sessions: what one has seen, carried to another client by a token."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

import boki
from itests.support.sdk_client import collect, present

if TYPE_CHECKING:
    from itests.sdk.conftest import Cluster


async def test_a_token_carries_what_was_seen(cluster: Cluster, name: str) -> None:
    async with await cluster.connect() as one, await cluster.connect() as other:
        for number in range(30):
            seqnum = await one.book(name).append(str(number).encode())
            continued = other.session(one.session_token())
            assert present(await continued.book(name).check_tail()).seqnum >= seqnum


async def test_a_token_is_short_text(client: boki.Client, book: boki.Book) -> None:
    await book.append(b"x")
    token = client.session_token()
    assert token.isascii()
    assert len(token) < 100
    assert all(letter.isalnum() or letter in "._-" for letter in token)


async def test_reading_advances_the_token(cluster: Cluster, name: str) -> None:
    async with await cluster.connect() as one, await cluster.connect() as other:
        seqnum = await one.book(name).append(b"x")
        before = other.session_token()
        assert await other.book(name).read_next(at_least=seqnum, wait=30) is not None
        assert other.session_token() != before
        position = other.book(name).position
        assert position is not None
        assert position >= seqnum


async def test_sessions_of_one_client_are_apart(client: boki.Client, name: str) -> None:
    mine = client.session()
    assert mine.book(name).position is None
    await client.book(name).append(b"x")
    assert mine.book(name).position is None
    assert client.book(name).position is not None
    await mine.book(name).append(b"y")
    assert mine.book(name).position is not None


async def test_a_session_continues_from_itself(client: boki.Client, name: str) -> None:
    seqnum = await client.book(name).append(b"x", tags=["t"])
    other = client.session(client.session_token())
    assert present(await other.book(name).check_tail("t")).seqnum == seqnum


async def test_leaving_a_session_leaves_the_client_open(client: boki.Client, name: str) -> None:
    async with client.session() as mine:
        await mine.book(name).append(b"x")
    await client.book(name).append(b"y")
    await mine.book(name).append(b"z")


async def test_appends_of_two_sessions_to_one_book(client: boki.Client, name: str) -> None:
    sessions = [client.session() for _ in range(8)]
    await asyncio.gather(
        *(
            session.book(name).append(f"{index} {turn}".encode(), tags=[f"session {index}"])
            for turn in range(20)
            for index, session in enumerate(sessions)
        )
    )
    for index in range(8):
        found = [record.data for record in await collect(client.book(name).read(f"session {index}"))]
        assert found == [f"{index} {turn}".encode() for turn in range(20)]


@pytest.mark.parametrize(
    "token", ["", "x", "boki1.", "boki1.AAAA", "boki1.!!!", "boki2.AQAAAAAAAQAAAAQAAAAAAAAAUpkg1g", 7]
)
async def test_what_is_no_token(client: boki.Client, token: object) -> None:
    with pytest.raises(boki.InvalidArgument, match="session token"):
        _ = client.session(token)  # type: ignore[arg-type]


async def test_a_token_that_was_cut_off(client: boki.Client, book: boki.Book) -> None:
    await book.append(b"x")
    token = client.session_token()
    for cut in range(len(token)):
        with pytest.raises(boki.InvalidArgument):
            _ = client.session(token[:cut])


async def test_the_position_never_goes_back(book: boki.Book) -> None:
    positions = []
    for number in range(20):
        await book.append(str(number).encode())
        await book.read_next(consistency="any")
        positions.append(book.position or 0)
    assert positions == sorted(positions)


async def test_a_token_of_another_cluster_is_named_at_once(client: boki.Client, name: str) -> None:
    async with boki.testing.MemoryCluster() as elsewhere:
        other = await elsewhere.connect()
        await other.book(name).append(b"x")
        token = other.session_token()
    for use in (client.session, client.merge):
        with pytest.raises(boki.WrongCluster, match="found one of another"):
            use(token)
    assert await client.book(name).check_tail() is None
