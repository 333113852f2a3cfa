"""Apache's Java client and ours on the same ledgers: on our bookies, and on Apache's.

Each reads what the other closed, and recovers what the other left open when it was killed. Ours
speaks v2; Java speaks v2 but in the test that says v3.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final

import pytest

from boki_cli.local_cluster import LocalCluster
from boki_common.bookkeeper.ledger_metadata import LedgerState
from boki_common.errors import LedgerFenced, NoSuchLedger
from itests.bookkeeper.conftest import MakeApache, MakeClient
from itests.support.apache_bookkeeper import ApacheBookkeeper, BookkeeperMissing
from itests.support.fixtures import skip_or_fail

pytestmark = [
    pytest.mark.bookkeeper,
    pytest.mark.nightly,
    pytest.mark.processes,
    pytest.mark.zookeeper,
    pytest.mark.timeout(180),
]

PROGRAM: Final = "LedgerProgram"
SOURCE: Final = Path(__file__).parent / "java" / f"{PROGRAM}.java"
PREFIX: Final = "boki: "
ENTRIES: Final = 200
JAVA_NAMES: Final = {"HMAC": "MAC"}
KEY: Final = b"key"

digests = pytest.mark.parametrize("digest", ["CRC32C", "CRC32", "HMAC", "DUMMY"])


class Java:
    """The Java program on one cluster; methods return the facts it printed."""

    def __init__(self, apache: ApacheBookkeeper) -> None:
        self.protocol = "v2"
        self.apache = apache
        self.boki_uri = apache.boki_uri
        apache.compile(SOURCE)

    async def run(self, command: str, digest: str, *arguments: object) -> list[str]:
        printed = await asyncio.to_thread(self.apache.run, PROGRAM, *self._arguments(command, digest, arguments))
        return [line.removeprefix(PREFIX) for line in printed.splitlines() if line.startswith(PREFIX)]

    async def write_and_be_killed(self, digest: str, count: int) -> int:
        """Every entry was acknowledged, the ledger is open, the process is gone."""
        return await asyncio.to_thread(self._write_and_be_killed, digest, count)

    def _write_and_be_killed(self, digest: str, count: int) -> int:
        process = self.apache.spawn(PROGRAM, *self._arguments("write", digest, (count, "leave")))
        with process:
            assert process.stdout is not None
            try:
                facts = (line.removeprefix(PREFIX).split() for line in process.stdout if line.startswith(PREFIX))
                found = {name: int(value) for name, value in itertools.islice(facts, 2)}
            finally:
                process.kill()
        assert found.get("last") == count - 1, "the program ended early, see its log"
        return found["ledger"]

    def _arguments(self, command: str, digest: str, more: tuple[object, ...]) -> list[str]:
        return [command, self.apache.apache_uri, self.protocol, JAVA_NAMES.get(digest, digest), *map(str, more)]


def java_on(apache: ApacheBookkeeper) -> Java:
    try:
        return Java(apache)
    except BookkeeperMissing as error:
        skip_or_fail("bookkeeper", str(error))


@pytest.fixture(params=["our bookies", "apache bookies"])
async def java(request: pytest.FixtureRequest, make_apache: MakeApache, tmp_path: Path) -> AsyncIterator[Java]:
    if request.param == "apache bookies":
        yield java_on(request.getfixturevalue("apache"))
        return
    made = java_on(make_apache("ours"))
    async with LocalCluster(tmp_path, made.boki_uri, bookies=3, sequencers=0, engines=0):
        yield made


def texts(facts: list[str]) -> list[str]:
    return [fact.removeprefix("entry ") for fact in facts if fact.startswith("entry ")]


@digests
async def test_our_client_reads_what_java_wrote(java: Java, make_client: MakeClient, digest: str) -> None:
    facts = await java.run("write", digest, ENTRIES, "close")
    assert facts[-1] == "closed"
    ledger_id = int(facts[0].removeprefix("ledger "))
    client = await make_client(java.boki_uri)
    reader = await client.open(ledger_id, recover=False, password=KEY)
    assert (reader.closed, reader.last_entry) == (True, ENTRIES - 1)
    entries = [bytes(entry).decode() for entry in await reader.read(0, ENTRIES - 1)]
    assert entries == [f"java {number}" for number in range(ENTRIES)]
    assert (await client.metadata_of(ledger_id)).digest_type == digest


@digests
async def test_java_reads_what_our_client_wrote(java: Java, make_client: MakeClient, digest: str) -> None:
    writer = await (await make_client(java.boki_uri)).create(digest=digest, password=KEY)
    for number in range(ENTRIES):
        writer.submit(b"ours %d" % number)
    await writer.append(b"the last")
    await writer.close()
    facts = await java.run("read", digest, writer.ledger_id)
    assert facts[:2] == [f"last {ENTRIES}", "closed true"]
    assert texts(facts) == [*(f"ours {number}" for number in range(ENTRIES)), "the last"]


async def test_our_client_recovers_the_ledger_of_a_java_process_that_was_killed(
    java: Java, make_client: MakeClient
) -> None:
    ledger_id = await java.write_and_be_killed("CRC32C", ENTRIES)
    client = await make_client(java.boki_uri)
    assert (await client.metadata_of(ledger_id)).state is LedgerState.OPEN
    reader = await client.open(ledger_id, recover=True, floor=ENTRIES, password=KEY)
    assert (reader.closed, reader.last_entry) == (True, ENTRIES - 1)
    entries = [bytes(entry).decode() for entry in await reader.read(0, ENTRIES - 1)]
    assert entries == [f"java {number}" for number in range(ENTRIES)]
    assert texts(await java.run("read", "CRC32C", ledger_id)) == entries


async def test_java_recovers_an_open_ledger_of_ours(java: Java, make_client: MakeClient) -> None:
    client = await make_client(java.boki_uri)
    writer = await client.create(password=KEY)
    for number in range(ENTRIES - 1):
        writer.submit(b"ours %d" % number)
    await writer.append(b"the last")
    facts = await java.run("recover", "CRC32C", writer.ledger_id)
    assert facts[:2] == [f"last {ENTRIES - 1}", "closed true"]
    assert texts(facts) == [*(f"ours {number}" for number in range(ENTRIES - 1)), "the last"]
    metadata = await client.metadata_of(writer.ledger_id)
    assert (metadata.state, metadata.last_entry) == (LedgerState.CLOSED, ENTRIES - 1)
    with pytest.raises(LedgerFenced):
        await writer.append(b"late")


async def test_each_deletes_a_ledger_of_the_other(java: Java, make_client: MakeClient) -> None:
    client = await make_client(java.boki_uri)
    writer = await client.create(password=KEY)
    await writer.append(b"ours")
    await writer.close()
    assert await java.run("delete", "CRC32C", writer.ledger_id) == [f"deleted {writer.ledger_id}"]
    with pytest.raises(NoSuchLedger):
        await client.metadata_of(writer.ledger_id)
    facts = await java.run("write", "CRC32C", 1, "close")
    ledger_id = int(facts[0].removeprefix("ledger "))
    await client.delete(ledger_id)
    with pytest.raises(RuntimeError, match="NoSuchLedgerExist"):
        await java.run("read", "CRC32C", ledger_id)


async def test_a_java_client_that_speaks_v3_reads_writes_and_recovers(java: Java, make_client: MakeClient) -> None:
    java.protocol = "v3"
    client = await make_client(java.boki_uri)
    ledger_id = await java.write_and_be_killed("CRC32C", ENTRIES)
    reader = await client.open(ledger_id, recover=True, floor=ENTRIES, password=KEY)
    entries = [bytes(entry).decode() for entry in await reader.read(0, ENTRIES - 1)]
    assert entries == [f"java {number}" for number in range(ENTRIES)]
    assert texts(await java.run("read", "CRC32C", ledger_id)) == entries
    writer = await client.create(password=KEY)
    await writer.append(b"ours")
    assert texts(await java.run("recover", "CRC32C", writer.ledger_id)) == ["ours"]
    with pytest.raises(LedgerFenced):
        await writer.append(b"late")


async def test_the_shell_of_apache_lists_and_reads_what_our_client_wrote(java: Java, make_client: MakeClient) -> None:
    writer = await (await make_client(java.boki_uri)).create()
    for number in range(10):
        await writer.append(b"ours %d." % number)
    await writer.close()
    listed = await asyncio.to_thread(java.apache.shell, "listledgers", "-m")
    assert f"ledgerId={writer.ledger_id}," in listed
    shown = await asyncio.to_thread(java.apache.shell, "ledgermetadata", "-ledgerid", str(writer.ledger_id))
    assert "state=CLOSED" in shown and "lastEntryId=9" in shown
    read = await asyncio.to_thread(java.apache.shell, "readledger", "-ledgerid", str(writer.ledger_id), "-msg")
    assert all(f"ours {number}." in read for number in range(10))
