"""An Apache bookie that comes back empty under its old id is not believed: what it forgot is not taken for never written."""

from __future__ import annotations

import asyncio
import shutil

import pytest

from boki_cli.testing.logs import ledgers_of
from boki_common.bookkeeper.ledger_metadata import LedgerState
from boki_common.errors import RecoveryFailed
from boki_ledger.settings import LedgerSettings
from itests.bookkeeper.conftest import MakeApache
from itests.bookkeeper.marks import APACHE
from itests.support.apache_bookkeeper import ApacheBookie, ApacheBookkeeper

pytestmark = [*APACHE, pytest.mark.nightly, pytest.mark.timeout(180)]

ENTRIES = 50


def restart_empty(apache: ApacheBookkeeper, bookie: ApacheBookie) -> None:
    """As an operator does who formats a bookie: its disk is empty and it gets a new cookie."""
    bookie.kill()
    shutil.rmtree(apache.folder_of(bookie))
    apache.delete_cookie(bookie)
    restart(apache, bookie)


def restart(apache: ApacheBookkeeper, bookie: ApacheBookie) -> None:
    bookie.kill()
    apache.wait_until_unregistered(bookie)
    bookie.start()
    apache.wait_until_registered(bookie)


async def test_what_a_reborn_bookie_forgot_is_not_taken_for_never_written(make_apache: MakeApache) -> None:
    apache = make_apache("reborn")
    await asyncio.to_thread(apache.format)
    reborn, away, lagging = await asyncio.to_thread(apache.start_bookies, 3)
    async with ledgers_of(apache.boki_uri, LedgerSettings(retry_for_s=2.0)) as (_, client):
        writer = await client.create(replicas=3, acks=2)
        await writer.append(b"on all three")
        lagging.kill()
        for number in range(ENTRIES):
            await writer.append(b"on two of three %d" % number)
        writer.abandon()
        await asyncio.to_thread(restart, apache, lagging)
        await asyncio.to_thread(restart_empty, apache, reborn)
        away.kill()
        # Two of three say that they never had the entries, which proves it, unless one of them was formatted since.
        with pytest.raises(RecoveryFailed):
            await client.open(writer.ledger_id, recover=True)
        assert (await client.metadata_of(writer.ledger_id)).state is not LedgerState.CLOSED
        await asyncio.to_thread(restart, apache, away)
        reader = await client.open(writer.ledger_id, recover=True)
        assert reader.last_entry == ENTRIES
        assert bytes((await reader.read(ENTRIES, ENTRIES))[0]) == b"on two of three %d" % (ENTRIES - 1)
