"""A token leads back to its session, so that appends of one client keep one writer."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from boki_common.errors import InvalidArgument
from boki_gateway.sessions import Sessions

if TYPE_CHECKING:
    from boki.testing import MemoryCluster


async def test_without_a_token_it_is_the_gateways_own(cluster: MemoryCluster) -> None:
    client = await cluster.connect()
    sessions = Sessions(client, limit=10)
    assert sessions.find(None) is client
    await client.book("b").append(b"x")
    assert sessions.find(sessions.token_of(client)) is client


async def test_a_foreign_token_makes_a_session_once(cluster: MemoryCluster) -> None:
    client, elsewhere = await cluster.connect(), await cluster.connect()
    await elsewhere.book("b").append(b"x")
    sessions = Sessions(client, limit=10)
    session = sessions.find(elsewhere.session_token())
    assert session is not client
    assert session.session_token() == elsewhere.session_token()
    assert sessions.find(elsewhere.session_token()) is session
    await session.book("b").append(b"y")
    assert sessions.find(sessions.token_of(session)) is session
    with pytest.raises(InvalidArgument, match="expected a session token"):
        _ = sessions.find("x")


async def test_tokens_are_bounded(cluster: MemoryCluster) -> None:
    client = await cluster.connect()
    sessions = Sessions(client, limit=3)
    tokens = []
    for _ in range(5):
        await client.book("b").append(b"x")
        tokens.append(sessions.token_of(client))
    assert len(sessions) == 3
    assert sessions.find(tokens[-1]) is client
    assert sessions.find(tokens[0]) is not client, "it was dropped, and continues all the same"
