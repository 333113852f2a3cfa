"""The whole of Boki on Apache's bookies: sequencer and engine are ours, and only the metadata address says where they are."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

import pytest

import boki
from boki_cli.demo.local_cluster import LocalCluster
from boki_common.bookkeeper.ledger_metadata import LedgerState
from itests.bookkeeper.conftest import MakeApache, MakeClient
from itests.bookkeeper.marks import APACHE
from itests.whole_path.load import Load, stop_and_check

pytestmark = [*APACHE, pytest.mark.nightly, pytest.mark.timeout(240)]


async def test_the_whole_path_on_three_apache_bookies(
    make_apache: MakeApache, make_client: MakeClient, tmp_path: Path
) -> None:
    apache = make_apache("whole-path")
    await asyncio.to_thread(apache.format)
    bookies = await asyncio.to_thread(apache.start_bookies, 3)
    async with LocalCluster(tmp_path, apache.boki_uri, bookies=0) as cluster:
        async with boki.connect(cluster.url) as client, Load(client.book("apache")) as load:
            await load.more(300)
            await cluster.kill("engine-1")
            await cluster.start("engine-1")
            await load.more(300)
            await cluster.restart("sequencer-1")
            await load.more(300)
            await asyncio.to_thread(bookies[0].kill)
            await load.more(300)  # two of three are enough
            await stop_and_check(load)
        ledgers = await make_client(apache.boki_uri)
        ids = await ledgers.list()
        used = {
            one for ledger in ids for _, ensemble in (await ledgers.metadata_of(ledger)).ensembles for one in ensemble
        }
        assert used == {bookie.bookie_id for bookie in bookies}
        states = [(await ledgers.metadata_of(ledger)).state for ledger in ids]
        assert LedgerState.CLOSED in states  # those of the engine and the sequencer that were killed
    left = await ledgers.list()
    assert set(left) <= set(ids)  # an engine that stops cleanly deletes its unused spare ledger
    listed = await asyncio.to_thread(apache.shell, "listledgers", "-m")
    assert sorted(int(ledger) for ledger in re.findall(r"ledgerId=(\d+),", listed)) == left
