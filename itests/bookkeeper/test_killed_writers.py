"""A ledger whose writer was killed with SIGKILL is recovered by the other client, and is whole."""

from __future__ import annotations

import asyncio
import sys
from typing import Final

from boki_common.bookkeeper.ledger_metadata import LedgerState
from itests.bookkeeper.both_kinds import BothKinds
from itests.bookkeeper.clients import JavaClient, OurClient, Placement
from itests.bookkeeper.java_service import JavaService
from itests.bookkeeper.marks import SHARED
from itests.support.zookeeper import ROOT

pytestmark = SHARED

ENTRIES: Final = 200


async def test_our_client_recovers_what_a_killed_java_process_wrote(
    both_kinds: BothKinds, java: JavaService, placement: Placement
) -> None:
    victim = await JavaService.start(both_kinds.apache)
    try:
        writer = await JavaClient(victim, "v2").create(placement, "CRC32C")
        await writer.append([f"java {number}" for number in range(ENTRIES)])
    finally:
        victim.kill()
        await victim.close()
    async with OurClient(both_kinds.store, "v2") as ours:
        assert (await ours.ledgers.metadata_of(writer.ledger_id)).state is LedgerState.OPEN
        reader = await ours.open(writer.ledger_id, "CRC32C", recover=True)
        assert (reader.closed, reader.last) == (True, ENTRIES - 1)
        assert await reader.read(0, reader.last) == [f"java {number}" for number in range(ENTRIES)]
    theirs = await JavaClient(java, "v2").open(writer.ledger_id, "CRC32C", recover=False)
    assert (theirs.closed, theirs.last) == (True, ENTRIES - 1)


async def test_java_recovers_what_a_killed_process_of_ours_wrote(
    both_kinds: BothKinds, java: JavaService, placement: Placement
) -> None:
    victim = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "itests.bookkeeper.writer_process"),
        *(both_kinds.apache.boki_uri, str(ENTRIES), *placement.ensemble),
        cwd=ROOT,
        stdout=asyncio.subprocess.PIPE,
    )
    try:
        assert victim.stdout is not None
        ledger_id = int(await victim.stdout.readline())
    finally:
        victim.kill()
        await victim.wait()
    reader = await JavaClient(java, "v2").open(ledger_id, "CRC32C", recover=True)
    assert (reader.closed, reader.last) == (True, ENTRIES - 1)
    assert await reader.read(0, reader.last) == [f"ours {number}" for number in range(ENTRIES)]
    async with OurClient(both_kinds.store, "v2") as ours:
        assert (await ours.open(ledger_id, "CRC32C", recover=False)).last == ENTRIES - 1
