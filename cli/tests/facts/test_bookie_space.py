"""How much room bookies have: those that answer are known, the others are left out."""

from __future__ import annotations

from boki_bookie.bookie import Bookie
from boki_cli.facts.bookie_space import BookieSpace
from boki_common.bookkeeper.layout import init_cluster
from boki_common.cluster_token import NO_TOKEN, parse
from boki_common.metadata.memory import MemoryStore
from boki_common.net.connection import Address
from boki_common.runtime.memory_disk import MemoryDisk
from boki_common.runtime.process import SystemClock, SystemRandom
from boki_ledger.settings import LedgerSettings

TOKEN = parse("0123456789abcdef-of-the-test", "the test")


async def test_a_bookie_that_asks_for_the_token_reports_its_space_to_who_shows_it() -> None:
    store = MemoryStore()
    await store.start()
    await init_cluster(store)
    bookie = await Bookie.start(
        disk=MemoryDisk(),
        metadata=store,
        address=Address("127.0.0.1", 0),
        clock=SystemClock(),
        rng=SystemRandom(),
        token=TOKEN,
    )
    for token, answers in ((TOKEN, [bookie.bookie_id]), (NO_TOKEN, [])):
        space = BookieSpace(store, LedgerSettings(answer_timeout_s=1.0), token)
        assert list(await space.ask([bookie.bookie_id], timeout_s=5.0)) == answers
        await space.close()
    await bookie.close()
    await store.close()


async def test_a_bookie_reports_its_space_and_one_that_is_away_does_not() -> None:
    store = MemoryStore()
    await store.start()
    await init_cluster(store)
    disk = MemoryDisk(capacity_bytes=1 << 30)
    bookie = await Bookie.start(
        disk=disk, metadata=store, address=Address("127.0.0.1", 0), clock=SystemClock(), rng=SystemRandom()
    )
    space = BookieSpace(store, LedgerSettings(answer_timeout_s=1.0))
    found = await space.ask([bookie.bookie_id, "f" * 32], timeout_s=5.0)
    assert list(found) == [bookie.bookie_id]
    answers = found[bookie.bookie_id]
    assert 0 <= answers.total_bytes - answers.free_bytes < 1 << 27, (
        "what a new bookie takes, and no more; it takes some just now"
    )
    assert await space.ask([], timeout_s=5.0) == {}
    await space.close()
    await bookie.close()
    assert await BookieSpace(store, LedgerSettings()).ask([bookie.bookie_id], timeout_s=0.0) == {}
    await store.close()
