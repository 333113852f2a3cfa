"""Ledgers whose bookies are of both kinds, and ensemble changes from one kind to the other."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from boki_cli.demo.local_cluster import LocalCluster
from boki_cli.testing.logs import ledgers_of
from boki_common.net.connection import Address
from itests.bookkeeper.both_kinds import bookie_at
from itests.bookkeeper.conftest import MakeApache, MakeClient
from itests.bookkeeper.marks import APACHE
from itests.bookkeeper.test_our_client_on_apache_bookies import append_all, payload_of
from itests.support.apache_bookkeeper import ApacheBookie, ApacheBookkeeper

pytestmark = [*APACHE, pytest.mark.timeout(180)]


@dataclass(frozen=True, slots=True)
class Mixed:
    """Two bookies of ours and one of Apache's on one tree."""

    apache: ApacheBookkeeper
    theirs: ApacheBookie
    ours: LocalCluster


async def id_at(mixed: Mixed, role: str) -> str:
    """The bookie id, a UUID, of a bookie of ours."""
    async with ledgers_of(mixed.apache.boki_uri) as (store, _):
        return await bookie_at(store, Address.parse(mixed.ours.address(role)))


@pytest.fixture
async def mixed(make_apache: MakeApache, tmp_path: Path) -> AsyncIterator[Mixed]:
    apache = make_apache("mixed")
    ours = LocalCluster(tmp_path, apache.boki_uri, bookies=3, sequencers=0, engines=0)
    try:
        await ours.start("bookie-1", "bookie-2")
        (theirs,) = await asyncio.to_thread(apache.start_bookies, 1)
        yield Mixed(apache, theirs, ours)
    finally:
        await ours.kill(*ours.roles)


async def test_a_ledger_on_both_kinds_is_recovered_and_read_when_a_bookie_is_gone(
    mixed: Mixed, make_client: MakeClient
) -> None:
    client = await make_client(mixed.apache.boki_uri)
    writer = await client.create()
    payloads = await append_all(writer, 300)
    (_, ensemble), *_ = (await client.metadata_of(writer.ledger_id)).ensembles
    assert set(ensemble) == {mixed.theirs.bookie_id, await id_at(mixed, "bookie-1"), await id_at(mixed, "bookie-2")}
    writer.abandon()
    await mixed.ours.kill("bookie-1")
    reader = await (await make_client(mixed.apache.boki_uri)).open(writer.ledger_id, recover=True, floor=300)
    assert [bytes(entry) for entry in await reader.read(0, 299)] == payloads


@pytest.mark.parametrize("lost", ["theirs", "ours"])
async def test_a_lost_bookie_is_replaced_by_one_of_the_other_kind(
    mixed: Mixed, make_client: MakeClient, lost: str
) -> None:
    client = await make_client(mixed.apache.boki_uri)
    writer = await client.create()
    payloads = await append_all(writer, 100)
    if lost == "theirs":
        await mixed.ours.start("bookie-3")
        gone, spare = mixed.theirs.bookie_id, await id_at(mixed, "bookie-3")
        await asyncio.to_thread(mixed.theirs.kill)
    else:
        (other,) = await asyncio.to_thread(mixed.apache.start_bookies, 1)
        gone, spare = await id_at(mixed, "bookie-1"), other.bookie_id
        await mixed.ours.kill("bookie-1")
    while len(ensembles := (await client.metadata_of(writer.ledger_id)).ensembles) == 1:
        payloads.append(payload_of(len(payloads)))
        await writer.append(payloads[-1])
    (_, before), (_, after) = ensembles
    assert (set(before) - set(after), set(after) - set(before)) == ({gone}, {spare})
    payloads.append(b"the last")
    await writer.append(payloads[-1])
    await writer.close()
    reader = await (await make_client(mixed.apache.boki_uri)).open(writer.ledger_id, recover=False)
    assert [bytes(entry) for entry in await reader.read(0, len(payloads) - 1)] == payloads


async def test_the_shell_of_apache_copies_the_ledgers_of_a_lost_bookie_of_ours_to_another(
    mixed: Mixed, make_client: MakeClient
) -> None:
    client = await make_client(mixed.apache.boki_uri)
    writer = await client.create()
    payloads = await append_all(writer, 100)
    await writer.close()
    await mixed.ours.start("bookie-3")
    lost, spare = await id_at(mixed, "bookie-1"), await id_at(mixed, "bookie-3")
    await mixed.ours.kill("bookie-1")
    await asyncio.to_thread(mixed.apache.shell, "recover", "-force", lost)
    ensembles = (await client.metadata_of(writer.ledger_id)).ensembles
    assert all(lost not in ensemble and spare in ensemble for _, ensemble in ensembles)
    await mixed.ours.kill("bookie-2")
    await asyncio.to_thread(mixed.theirs.kill)
    reader = await (await make_client(mixed.apache.boki_uri)).open(writer.ledger_id, recover=False)
    assert [bytes(entry) for entry in await reader.read(0, 99)] == payloads  # the copies alone are left
