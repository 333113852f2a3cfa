"""Five bookies in processes of their own, one drained under load by the command of the page, and one that is gone: nothing is lost."""

from __future__ import annotations

import asyncio
import re
import shlex
from pathlib import Path

import pytest

import boki
from boki_cli.demo.local_cluster import LocalCluster
from boki_cli.facts.cluster_status import gather
from boki_cli.testing.logs import ledgers_of
from boki_common.bookkeeper import layout
from boki_common.bookkeeper.bookie_mark import RETIRED
from boki_common.bookkeeper.bookie_marks import read_mark
from boki_common.ids import BookieId
from boki_common.metadata.store import MetadataStore
from itests.support.processes import command
from itests.whole_path.test_repair import QUICK, check_copies, fill, named

pytestmark = [pytest.mark.processes, pytest.mark.timeout(240)]

ROOT = Path(__file__).parents[2]
SETTINGS = {
    **QUICK,
    "BOKI_CONTROLLER_REPAIR": "ours",
    "BOKI_CONTROLLER_REPAIR_ROLL_S": "1",
    "BOKI_BOOKIE_GC_GRACE_S": "0",
    "BOKI_BOOKIE_GC_INTERVAL_S": "0.2",
    "BOKI_BOOKIE_DISK_CHECK_INTERVAL_S": "0.2",
}


def commands_of_the_page() -> list[list[str]]:
    """What docs/disks.md says to do about a machine that leaves: check, drain, cancel."""
    section = (ROOT / "docs" / "disks.md").read_text().partition("\n## A machine leaves\n")[2].partition("\n## ")[0]
    (block,) = re.findall(r"^```sh\n(.*?)^```", section, re.DOTALL | re.MULTILINE)
    return [shlex.split(line) for line in block.splitlines()]


async def bookie_at(cluster: LocalCluster, store: MetadataStore, name: str) -> BookieId:
    found = await gather(cluster.url, store, timeout_s=5)
    return next(BookieId(one.name) for one in found.bookies if one.address == cluster.address(name))


async def run(words: list[str], cluster: LocalCluster, bookie: BookieId) -> tuple[int | None, str]:
    """Runs a command of the page for a bookie of this cluster."""
    values = {"--metadata": cluster.metadata_uri, "drain": bookie}
    known = [values.get(before, word) for before, word in zip(["", *words], words, strict=False)]
    code, out, err = await command(*known[1:], within_s=120)
    return code, out + err


async def test_a_machine_leaves_under_load_and_another_one_that_is_gone(tmp_path: Path) -> None:
    check, drain, cancel = commands_of_the_page()
    async with (
        LocalCluster(tmp_path, bookies=5, controllers=2, settings=SETTINGS) as cluster,
        ledgers_of(cluster.metadata_uri) as (store, client),
        boki.connect(cluster.url) as session,
    ):
        written = await fill(client)
        leaving = await bookie_at(cluster, store, "bookie-2")
        before = [ledger_id for ledger_id in await named(client, leaving) if ledger_id in written]
        assert before, "some ledgers have a copy there"
        seqnums: list[int] = []

        async def load() -> None:
            while True:
                seqnums.append(await session.book("b").append(b"%d" % len(seqnums)))

        loading = asyncio.create_task(load())
        code, told = await run(check, cluster, leaving)
        assert (code, told) == (0, f"bookie {leaving} can be drained\n")
        code, told = await run(drain, cluster, leaving)
        assert (code, "is drained and retired" in told) == (0, True), told
        assert (await read_mark(store, leaving)).mark.empty
        assert leaving not in await layout.bookie_cookies(store)
        code, told = await run(cancel, cluster, leaving)
        assert (code, "is retired" in told) == (2, True), told
        assert not await named(client, leaving)
        await check_copies(client, {ledger_id: written[ledger_id] for ledger_id in before})
        gone = await bookie_at(cluster, store, "bookie-3")
        await cluster.kill("bookie-3")
        while gone in await layout.available_bookies(store):
            await asyncio.sleep(0)
        code, told = await run(drain, cluster, gone)
        assert (code, (await read_mark(store, gone)).mark.state) == (0, RETIRED), told
        assert not await named(client, gone)
        code, told = await run(drain, cluster, await bookie_at(cluster, store, "bookie-1"))
        assert (code, "too few bookies:" in told) == (4, True), told
        loading.cancel()
        await asyncio.gather(loading, return_exceptions=True)
        records = [record.seqnum async for record in session.book("b").read()]
        assert records[: len(seqnums)] == seqnums, "one more may be there whose answer was not waited for"
        assert len(records) <= len(seqnums) + 1
