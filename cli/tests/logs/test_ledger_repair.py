"""A bookie that lost part of its disk becomes whole again by one command, and says so itself; what cannot be brought is named."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from boki_bookie.bookie import Bookie
from boki_bookie.entries.checkpoint import MARK_NAME
from boki_bookie.storage.storage import Storage
from boki_cli.logs.ledger_repair import ranges_text, runs_of
from boki_cli.testing.bookies import BookieCluster
from boki_common.bookkeeper.ledger_metadata import LedgerMetadata
from boki_common.errors import LedgerFenced
from boki_common.limits import KIB
from boki_ledger.testing.ledgers import until
from boki_ledger.write.writer import LedgerWriter

if TYPE_CHECKING:
    from boki_cli.testing.commands import Outcome, RunCommandLine

COUNT = 60
BROKEN = 1
PAYLOADS = [b"entry %3d " % number * 200 for number in range(COUNT)]


async def write(cluster: BookieCluster, *, replicas: int = 3, password: bytes = b"") -> LedgerWriter:
    """A ledger with `PAYLOADS`, on all bookies, and checkpointed there."""
    await cluster.ready()
    writer = await cluster.client.create(replicas=replicas, password=password)
    for payload in PAYLOADS:
        await writer.append(payload)
    return writer


async def closed_ledger(cluster: BookieCluster, **options: Any) -> int:
    writer = await write(cluster, **options)
    await writer.close()
    return writer.ledger_id


async def lose_entries(cluster: BookieCluster, number: int) -> Bookie:
    """The entry log gets a hole, the mark of the checkpoint and the journal are gone: salvaged by the operator's word."""
    await cluster.stop_bookie(number)
    disk = cluster.disks[number]
    (file,) = (name for name in disk.all_names() if name.startswith("entries/"))
    for offset in range(16 * KIB, 80 * KIB, KIB):
        disk.flip_bit(file, offset)
    for name in (MARK_NAME, *(name for name in disk.all_names() if name.startswith("journal/"))):
        await disk.remove(name)
    return await cluster.start_bookie(number, salvage=True)


def damaged(cluster: BookieCluster, number: int = BROKEN) -> tuple[Bookie, Storage]:
    bookie = cluster.run(lose_entries(cluster, number))
    assert isinstance(bookie.storage, Storage)
    return bookie, bookie.storage


def repair(run_boki: RunCommandLine, cluster: BookieCluster, *options: str, number: int = BROKEN) -> Outcome:
    bookie = cluster.bookies[number]
    assert bookie is not None
    done = run_boki("ledger", "repair", "--bookie", bookie.bookie_id, "--metadata", cluster.uri, *options)
    assert isinstance(done.out, str)
    return done


def lines(outcome: Outcome) -> list[dict[str, Any]]:
    return [json.loads(line) for line in outcome.out.splitlines()]


async def metadata(cluster: BookieCluster, ledger_id: int) -> LedgerMetadata:
    return await cluster.client.metadata_of(ledger_id)


def test_a_salvaged_bookie_is_made_whole_and_serves_alone(run_boki: RunCommandLine, bookies: BookieCluster) -> None:
    ledgers = [bookies.run(closed_ledger(bookies, password=password)) for password in (b"", b"secret")]
    bookie, storage = damaged(bookies)
    held = [len(storage.entry_ids(ledger_id) or ()) for ledger_id in ledgers]
    assert 0 < sum(held) < 2 * COUNT, "some entries are lost, not all"
    assert storage.limbo is not None and storage.limbo.ledgers == ledgers
    before = [bookies.run(metadata(bookies, ledger_id)) for ledger_id in ledgers]

    done = repair(run_boki, bookies, "--json")
    assert (done.code, done.err) == (0, "")
    *of_ledgers, summary = lines(done)
    assert {one["ledger_id"] for one in of_ledgers} == {
        ledger_id for ledger_id, count in zip(ledgers, held, strict=True) if count < COUNT
    }
    assert (summary["entries"], summary["copied"]) == (2 * COUNT, 2 * COUNT - sum(held))
    assert (summary["bookie"], summary["lost"], summary["left_open"]) == (bookie.bookie_id, 0, [])
    assert [bookies.run(metadata(bookies, ledger_id)) for ledger_id in ledgers] == before

    bookies.run(until(lambda: storage.limbo is None))
    for number in (0, 2):
        bookies.run(bookies.stop_bookie(number))
    for ledger_id, password in zip(ledgers, (b"", b"secret"), strict=True):
        reader = bookies.run(bookies.client.open(ledger_id, recover=False, password=password))
        assert [bytes(one) for one in bookies.run(reader.read(0, COUNT - 1))] == PAYLOADS


def test_a_second_repair_copies_nothing(run_boki: RunCommandLine, bookies: BookieCluster) -> None:
    bookies.run(closed_ledger(bookies))
    damaged(bookies)
    first, second = repair(run_boki, bookies), repair(run_boki, bookies)
    assert (first.code, second.code) == (0, 0)
    assert "0 copied" not in first.out
    assert f"{COUNT} entries of 1 closed ledgers were there, 0 copied (0 B)" in second.out


def test_an_open_ledger_is_named_and_recovered_only_with_the_option_for_it(
    run_boki: RunCommandLine, bookies: BookieCluster
) -> None:
    writer = bookies.run(write(bookies, password=b"secret"))
    _, storage = damaged(bookies)
    done = repair(run_boki, bookies, "--json")
    assert (done.code, lines(done)[-1]["left_open"]) == (0, [writer.ledger_id])
    printed = repair(run_boki, bookies)
    assert f"ledgers {writer.ledger_id}." in printed.out and "--recover-open" in printed.out
    assert bookies.run(metadata(bookies, writer.ledger_id)).state.name == "OPEN"

    done = repair(run_boki, bookies, "--recover-open", "--json")
    assert (done.code, lines(done)[-1]["left_open"]) == (0, [])
    found = bookies.run(metadata(bookies, writer.ledger_id))
    assert (found.state.name, found.last_entry) == ("CLOSED", COUNT - 1)
    with pytest.raises(LedgerFenced):
        bookies.run(writer.append(b"too late"))
    bookies.run(until(lambda: storage.limbo is None))


def test_entries_that_no_peer_has_are_named(run_boki: RunCommandLine, bookies: BookieCluster) -> None:
    ledger_id = bookies.run(closed_ledger(bookies))
    lost_everywhere: set[int] = set(range(COUNT))
    storages = [damaged(bookies, number)[1] for number in range(3)]
    for storage in storages:
        lost_everywhere -= set(storage.entry_ids(ledger_id) or ())
    assert lost_everywhere
    done = repair(run_boki, bookies, "--json")
    assert done.code == 1
    one, summary = lines(done)
    # peers are in limbo themselves: they do not deny what they lost
    assert (summary["lost"], summary["unanswered"]) == (0, len(lost_everywhere))
    assert one["unanswered_ranges"] == [list(run) for run in runs_of(sorted(lost_everywhere))]
    error = json.loads(done.err)
    assert (error["error"], error["exit_code"]) == ("CheckFailed", 1)
    assert f"ledger {ledger_id}: it lacks entries {ranges_text(sorted(lost_everywhere))}" in error["message"]
    assert storages[BROKEN].limbo is not None, "and nobody claims what is not so"


def test_an_entry_with_one_copy_only_is_lost_with_its_bookie(run_boki: RunCommandLine, bookies: BookieCluster) -> None:
    async def on_one_bookie() -> tuple[int, int]:
        await bookies.ready()
        writer = await bookies.client.create(replicas=1, acks=1)
        for payload in PAYLOADS:
            await writer.append(payload)
        await writer.close()
        (owner,) = (await metadata(bookies, writer.ledger_id)).ensembles[0][1]
        ids = [bookie.bookie_id for bookie in bookies.bookies if bookie is not None]
        return writer.ledger_id, ids.index(owner)

    ledger_id, number = bookies.run(on_one_bookie())
    damaged(bookies, number)
    done = repair(run_boki, bookies, number=number)
    assert done.code == 1
    assert f"ledger {ledger_id}: it lacks entries" in done.err and "no other bookie has whole" in done.err


def test_a_bookie_that_is_down_is_unreachable_an_unknown_one_a_wrong_call(
    run_boki: RunCommandLine, bookies: BookieCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BOKI_LEDGER_ANSWER_TIMEOUT_S", "0.2")
    monkeypatch.setenv("BOKI_LEDGER_RETRY_FOR_S", "0.2")
    bookies.run(closed_ledger(bookies))
    bookie = bookies.bookies[BROKEN]
    assert bookie is not None
    bookies.run(bookies.stop_bookie(BROKEN))
    done = run_boki("ledger", "repair", "--bookie", bookie.bookie_id, "--metadata", bookies.uri)
    assert done.code == 3 and bookie.bookie_id in done.err
    run_boki("ledger", "repair", "--bookie", "somebody", "--metadata", bookies.uri).refused("somebody")


def test_ids_as_ranges() -> None:
    assert ranges_text([]) == ""
    assert ranges_text([3, 4, 5, 9, 11, 12]) == "3-5, 9, 11-12"
    assert ranges_text(range(0, 50, 2)).endswith("36, 38, … (5 more ranges)")
