"""What is gone for good is forgotten; what is up, or counted on, is not."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

import msgspec
import pytest

from boki_cli.cluster.forget_command import StillNeeded, forget_bookie, forget_role
from boki_common.bookkeeper import layout
from boki_common.bookkeeper.ledger_metadata import LedgerMetadata, LedgerState, encode
from boki_common.errors import InvalidArgument, LedgerError
from boki_common.ids import BookieId
from boki_common.metadata.membership import Membership, member_path
from boki_common.metadata.memory import MemoryStore
from boki_common.metadata.registered import register, registrations
from boki_common.net.connection import Address

if TYPE_CHECKING:
    from pathlib import Path

    from boki_cli.testing.commands import RunCommandLine

PLACE = Address("127.0.0.1", 7040)


@pytest.fixture
async def store() -> AsyncIterator[MemoryStore]:
    made = MemoryStore()
    await made.start()
    await layout.init_cluster(made)
    for name in ("lost", "here"):
        cookie = layout.Cookie(BookieId(name), "node:/disk", ("node:/disk",), ours=True)
        await made.create(layout.cookie_path(name), layout.encode_cookie(cookie))
    yield made
    await made.close()


async def test_an_engine_that_is_gone_is_forgotten_and_one_that_is_up_is_not(store: MemoryStore) -> None:
    with pytest.raises(InvalidArgument, match="no engine is expected, found 'x'"):
        await forget_role(store, "engine", "x")
    await register(store, "engine", host="node", address=PLACE, free_port=False)
    with pytest.raises(InvalidArgument, match=r"expected one of node/127.0.0.1:7040, found 'x'"):
        await forget_role(store, "engine", "x")
    value = msgspec.json.encode({"addresses": [str(PLACE)]})
    member = await Membership.join(store, member_path("engine", "i"), value)
    with pytest.raises(StillNeeded, match="is up: stop it"):
        await forget_role(store, "engine", "node/127.0.0.1:7040")
    await member.leave()
    await forget_role(store, "engine", "node/127.0.0.1:7040")
    assert await registrations(store, "engine") == {}


async def test_a_bookie_that_ledgers_count_on_is_forgotten_only_with_them(store: MemoryStore) -> None:
    with pytest.raises(InvalidArgument, match=r"expected the id of a bookie \(here, lost\), found 'x'"):
        await forget_bookie(store, "x", with_ledgers=True)
    ensemble = (BookieId("lost"), BookieId("here"))
    await layout.create_ledger(store, 5, encode(LedgerMetadata(2, 2, 2, ((0, ensemble),))))
    with pytest.raises(StillNeeded, match="1 ledger has copies on bookie lost: 5"):
        await forget_bookie(store, "lost", with_ledgers=False)
    await layout.create_ledger(store, 6, b"nonsense")
    with pytest.raises(LedgerError, match="ledger 6 may name bookie lost"):
        await forget_bookie(store, "lost", with_ledgers=False)
    closed = LedgerMetadata(2, 2, 2, ((0, ensemble),), state=LedgerState.CLOSED, last_entry=3, length=40)
    await layout.create_ledger(store, 7, encode(closed))
    await layout.create_ledger(store, 8, encode(LedgerMetadata(1, 1, 1, ((0, (BookieId("here"),)),))))
    given_up = await forget_bookie(store, "lost", with_ledgers=True)
    assert tuple(given_up) == ((5, 7), (7,), (6,))
    assert given_up.lines() == [
        "given up: the copies of 2 ledgers there: 5, 7",
        "LOST unless another of their bookies returns: entries of 1 ledger: 7",
        "metadata that cannot be read, which may have named it: 6",
    ]
    assert await layout.bookie_cookies(store) == ["here"]


async def test_what_others_have_is_not_lost_with_a_bookie(store: MemoryStore) -> None:
    there = await layout.register_bookie(store, "here", Address("127.0.0.1", 1))
    ensemble = (BookieId("lost"), BookieId("here"))
    closed = LedgerMetadata(2, 2, 2, ((0, ensemble),), state=LedgerState.CLOSED, last_entry=3, length=40)
    await layout.create_ledger(store, 7, encode(closed))
    given_up = await forget_bookie(store, "lost", with_ledgers=True)
    assert (given_up.ledgers, given_up.last_copies) == ((7,), ())
    await there.leave()


async def test_a_bookie_that_is_up_is_not_forgotten(store: MemoryStore) -> None:
    there = await layout.register_bookie(store, "here", Address("127.0.0.1", 1), read_only=True)
    with pytest.raises(StillNeeded, match="bookie here is up: stop it first"):
        await forget_bookie(store, "here", with_ledgers=True)
    await there.leave()
    await forget_bookie(store, "here", with_ledgers=False)
    assert await layout.bookie_cookies(store) == ["lost"]


def test_the_command_refuses_what_nobody_expects(run_boki: RunCommandLine, tmp_path: Path) -> None:
    metadata = f"sqlite://{tmp_path}/metadata.db"
    assert run_boki("init", "--metadata", metadata).code == 0
    done = run_boki("forget", "engine", "node/h:1", "--metadata", metadata)
    assert (done.code, done.err) == (2, "Error: no engine is expected, found 'node/h:1'\n")
    assert run_boki("forget", "gateway", "x", "--metadata", metadata).code == 2
