"""The carrier of machines: idle ones are rewritten, and what no program needs is trimmed. Large and halted ones: `test_checkpoints`."""

from __future__ import annotations

import boki
from boki.testing import MemoryCluster
from bokilib.append.log import Log
from bokilib.records import tags
from bokilib.records.contribution import Contribution
from bokilib.retention.carrier import Carrier
from bokirsm import carried
from bokirsm.model.events import DROPPED, Commit, Snapshot
from libs.tests.conftest import SetClock
from libs.tests.rsm.conftest import NewHost, NewRsm
from libs.tests.rsm.lane.test_checkpoints import DAY_S, SHELVES, Put, Shelf, Size, heads_of
from libs.tests.rsm.upkeep import checkpoint


async def test_a_carrier_rewrites_creations_that_no_host_handled_and_trims_unread_answers(
    new_host: NewHost, new_rsm: NewRsm, clock: SetClock, cluster: MemoryCluster
) -> None:
    rsm = await new_rsm(SHELVES)
    shelf = await rsm.create(Shelf, key="s")
    replies = tags.rsm_replies("gone")
    part = Contribution((tags.rsm_partition("shelves", 1), replies), {}, (Commit("shelves/1/x", DROPPED),))
    await rsm.log.append(part)
    for _ in range(3):
        clock.ms += 2 * DAY_S * 1_000
        log = Log((await cluster.connect()).book("b"))
        done = await Carrier(log, [carried(log)], who="c").round()
        assert done.carried == 1 and [item async for item in log.book.read(replies)] == []
        tag = tags.rsm_machine("shelves", "s")
        (only,) = [item async for item in log.book.read(tag) if isinstance(item, boki.Record)]
        assert only.time_ms == clock.ms
        assert await rsm.create(Shelf, key="s") == shelf
    async with await new_host(SHELVES, name="h") as host:
        await host.send(shelf, Put(1, "abc"))
        assert await host.ask(Size().to(shelf)) == 3
        await checkpoint(host, shelf.partition)
        assert [one.k for one in await heads_of(log.book) if isinstance(one, Snapshot)] == [3]  # type: ignore[arg-type]
