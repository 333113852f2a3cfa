"""Four bookies in processes of their own, one killed for good: the leading controller brings all closed ledgers back to full copies."""

from __future__ import annotations

import asyncio
import json
import re
import shlex
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

import boki
from boki_cli.demo.local_cluster import LocalCluster
from boki_cli.facts.cluster_status import gather
from boki_cli.logs.repair_commands import leaders_status
from boki_cli.testing.logs import ledgers_of
from boki_common.bookkeeper.ledger_metadata import LedgerState
from boki_common.cluster_token import NO_TOKEN
from boki_common.ids import BookieId
from boki_common.metadata.store import MetadataStore
from boki_ledger.client import LedgerClient

pytestmark = [pytest.mark.processes, pytest.mark.timeout(180)]

QUICK = {
    "BOKI_ENGINE_REPLICAS": "3",
    "BOKI_SEQUENCER_REPLICAS": "3",
    "BOKI_CONTROLLER_REPAIR_GRACE_S": "1",
    "BOKI_CONTROLLER_REPAIR_ROUND_S": "0.2",
}
LEDGERS = 20
ROOT = Path(__file__).parents[2]


async def fill(client: LedgerClient) -> dict[int, list[bytes]]:
    """Closed ledgers of three copies each."""
    written = {}
    for number in range(LEDGERS):
        payloads = [bytes((number, entry)) * (1 + 700 * entry) for entry in range(number % 7)]
        writer = await client.create()
        for payload in payloads:
            await writer.append(payload)
        await writer.close()
        written[writer.ledger_id] = payloads
    return written


async def status(store: MetadataStore) -> dict[str, Any]:
    return await leaders_status(store, NO_TOKEN)


async def named(client: LedgerClient, lost: BookieId) -> list[int]:
    """Closed ledgers that name a bookie."""
    found = []
    for ledger_id in await client.list():
        metadata = await client.metadata_of(ledger_id)
        if metadata.state is LedgerState.CLOSED and any(lost in bookies for _, bookies in metadata.ensembles):
            found.append(ledger_id)
    return found


async def check_copies(client: LedgerClient, written: dict[int, list[bytes]]) -> None:
    """Asks each bookie by itself for each copy that the metadata names, and reads all entries.

    For ledgers that were repaired: one that is closed with its ack quorum may lack a copy though no bookie was lost.
    """
    for ledger_id, payloads in written.items():
        metadata = await client.metadata_of(ledger_id)
        for bookie in metadata.ensembles[0][1]:
            done = await client.copies(ledger_id, metadata, bookie).make_whole(range(len(payloads)))
            assert (done.held, done.copied) == (len(payloads), 0), (ledger_id, bookie)
        if payloads:
            reader = await client.open(ledger_id, recover=False)
            assert [bytes(one) for one in await reader.read(0, len(payloads) - 1)] == payloads
            await reader.close()


async def test_a_bookie_that_is_killed_for_good_costs_no_copy_of_closed_ledgers(tmp_path: Path) -> None:
    settings = {**QUICK, "BOKI_CONTROLLER_REPAIR": "ours"}
    async with (
        LocalCluster(tmp_path, bookies=4, controllers=2, settings=settings) as cluster,
        ledgers_of(cluster.metadata_uri) as (store, client),
    ):
        written = await fill(client)
        async with boki.connect(cluster.url) as session:
            seqnums = [await session.book("b").append(b"%d" % number) for number in range(20)]
            found = await gather(cluster.url, store, timeout_s=5)
            lost = next(BookieId(one.name) for one in found.bookies if one.address == cluster.address("bookie-2"))
            before = [ledger_id for ledger_id in await named(client, lost) if ledger_id in written]
            assert before, "some ledgers have a copy there"
            await cluster.kill("bookie-2")
            async with asyncio.timeout(120):
                while await named(client, lost):
                    pass
            shown = await status(store)
            assert shown["mode"] == "ours"
            assert shown["blocked"] == []
            await check_copies(client, {ledger_id: written[ledger_id] for ledger_id in before})
            seqnums += [await session.book("b").append(b"%d" % number) for number in range(20, 40)]
            assert [record.seqnum async for record in session.book("b").read()] == seqnums


def commands_of_the_page() -> list[list[str]]:
    """What docs/disks.md says to do about a lost disk."""
    section = (ROOT / "docs" / "disks.md").read_text().partition("\n## A lost disk\n")[2].partition("\n## ")[0]
    (block,) = re.findall(r"^```sh\n(.*?)^```", section, re.DOTALL | re.MULTILINE)
    return [shlex.split(line) for line in block.splitlines()]


async def test_what_the_page_says_about_a_lost_disk_brings_all_copies_back(tmp_path: Path) -> None:
    audit, replace_disk, show = commands_of_the_page()
    # As long as a bookie may stay away: what is retired is not waited for.
    settings = {**QUICK, "BOKI_CONTROLLER_REPAIR": "ours", "BOKI_CONTROLLER_REPAIR_GRACE_S": "600"}
    async with (
        LocalCluster(tmp_path, bookies=4, controllers=1, settings=settings) as cluster,
        ledgers_of(cluster.metadata_uri) as (store, client),
    ):
        directory = str(tmp_path / "bookie-2")

        async def begin(words: list[str], *more: str) -> asyncio.subprocess.Process:
            values = {"--metadata": cluster.metadata_uri, "--data": directory}
            known = [values.get(before, word) for before, word in zip(["", *words], words, strict=False)]
            arguments = ["-m", "boki_cli.main", *known[1:], *more]
            return await asyncio.create_subprocess_exec(sys.executable, *arguments, stdout=asyncio.subprocess.PIPE)

        written = await fill(client)
        found = await gather(cluster.url, store, timeout_s=5)
        lost = next(BookieId(one.name) for one in found.bookies if one.address == cluster.address("bookie-2"))
        before = [ledger_id for ledger_id in await named(client, lost) if ledger_id in written]
        await cluster.kill("bookie-2")
        await asyncio.to_thread(shutil.rmtree, directory)
        async with asyncio.timeout(60):  # its session ends some seconds later
            report, returned = b"", None
            while str(lost).encode() not in report:
                asked = await begin(audit)
                report, _ = await asked.communicate()
                returned = asked.returncode
        assert returned == 1, report
        replacing = await begin(replace_disk, "--listen", cluster.address("bookie-2"))
        try:
            assert replacing.stdout is not None
            assert await replacing.stdout.readline(), "it serves"
            async with asyncio.timeout(120):
                while await named(client, lost):
                    pass
            await check_copies(client, {ledger_id: written[ledger_id] for ledger_id in before})
            shown = await begin(show)
            told, _ = await shown.communicate()
            assert (shown.returncode, b"makes missing copies anew" in told) == (0, True), told
        finally:
            replacing.terminate()
            await replacing.communicate()


async def test_by_default_missing_copies_are_reported_and_not_made(tmp_path: Path) -> None:
    async with (
        LocalCluster(tmp_path, bookies=4, controllers=1, settings=QUICK) as cluster,
        ledgers_of(cluster.metadata_uri) as (store, client),
    ):
        written = await fill(client)
        found = await gather(cluster.url, store, timeout_s=5)
        lost = next(BookieId(one.name) for one in found.bookies if one.address == cluster.address("bookie-2"))
        before = await named(client, lost)
        await cluster.kill("bookie-2")
        async with asyncio.timeout(120):
            while not (shown := await status(store))["audit"] or shown["audit"]["due_ledgers"] < len(before):
                pass
        assert (shown["mode"], shown["copied_entries"]) == ("observe", 0)
        assert json.loads(json.dumps(shown)) == shown
        assert [ledger_id for ledger_id in await named(client, lost) if ledger_id in written] == [
            ledger_id for ledger_id in before if ledger_id in written
        ]
