"""Whose shards a connection speaks for; an engine without a connection keeps its own for a grace. Connections are values here."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from boki_common.errors import NotPermitted
from boki_metalog.sequencer.shard_owners import ShardOwners

A, B = "0a" * 16, "0b" * 16


class Owners:
    def __init__(self, grace_s: float = 1_000.0) -> None:
        self.lost: list[str] = []
        self.owners = ShardOwners(grace_s, self.lost.append)

    def may(self, peer: Any, shard: int) -> bool:
        try:
            self.owners.check_own(peer, shard)
        except NotPermitted:
            return False
        return True


async def test_who_opened_a_shard_or_named_its_engine_speaks_for_it_and_nobody_else() -> None:
    made, first, second, thief = Owners(), object(), object(), object()
    made.owners.opened(first, A, 0)  # type: ignore[arg-type]
    made.owners.opened(thief, B, 1)  # type: ignore[arg-type]
    made.owners.named(second, (A,), {A, B})  # type: ignore[arg-type]
    assert made.owners.engines == {A: second, B: thief}, "the newest connection"
    for peer, own in ((first, {0}), (second, {0}), (thief, {1}), (object(), set())):
        assert {shard for shard in (0, 1) if made.may(peer, shard)} == own == set(made.owners.own(peer))  # type: ignore[arg-type]
        assert made.may(peer, 7), "what nobody opened is for others to refuse"
    for peer, refused in ((first, False), (second, False), (thief, True)):
        try:
            made.owners.check_speaks_for(peer, A)  # type: ignore[arg-type]
        except NotPermitted:
            assert refused
        else:
            assert not refused
    made.owners.check_speaks_for(thief, "0c" * 16)  # type: ignore[arg-type]  # who is not here may come by any


async def test_an_engine_that_is_away_keeps_its_shards_for_the_grace() -> None:
    made, before, after = Owners(), object(), object()
    made.owners.opened(before, A, 0)  # type: ignore[arg-type]
    made.owners.peer_lost(before, over=False)  # type: ignore[arg-type]
    assert not made.owners.engines and set(made.owners.graces) == {A}
    with pytest.raises(NotPermitted, match="named"):
        made.owners.check_speaks_for(object(), A)  # type: ignore[arg-type]
    made.owners.named(after, (A,), {A})  # type: ignore[arg-type]
    assert not made.owners.graces and made.may(after, 0) and not made.may(before, 0)
    made.owners.peer_lost(after, over=True)  # type: ignore[arg-type]
    assert not made.owners.graces, "a term that is over waits for nobody"


async def test_then_it_is_reported_as_lost_unless_the_term_is_over() -> None:
    made, peer = Owners(grace_s=0.0), object()
    for incarnation, ended in ((A, False), (B, True)):
        made.owners.opened(peer, incarnation, 0)  # type: ignore[arg-type]
        made.owners.peer_lost(peer, over=False)  # type: ignore[arg-type]
        if ended:
            made.owners.end()
        while made.owners.graces and not ended:
            await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert made.lost == [A]
