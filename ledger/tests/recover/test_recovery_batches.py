"""Recovery that reads in batches ends where the one that asks for one entry after another does, whatever bookies hold."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import replace

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.recover.recoveries import NAMES, put

from boki_common.bookkeeper.status import V2Status
from boki_common.errors import BokiError
from boki_common.testing.virtual_time import VirtualTimeLoop
from boki_ledger.recover import end_search
from boki_ledger.settings import LedgerSettings
from boki_ledger.testing.ledgers import QUICK, Ledgers, make_cookie

GOOD, MISSING, DAMAGED, UNREADABLE = "good", "missing", "damaged", "unreadable"

SEQUENTIAL = replace(QUICK, reads_in_flight=1, batch_read_entries=1, batch_reads_in_flight=1)
BATCHED = replace(QUICK, batch_read_entries=3, batch_reads_in_flight=2, window_entries=4)

copies = st.sampled_from([GOOD, GOOD, GOOD, GOOD, MISSING, DAMAGED, UNREADABLE])
entries = st.lists(st.tuples(copies, copies, copies), max_size=30)

carried_entries = st.sets(st.integers(0, 30), max_size=8)

Outcome = tuple[str, int, int, list[bytes]]


async def prepared(table: list[tuple[str, str, str]], *, apache: bool) -> tuple[Ledgers, int]:
    """A ledger whose entries are held as the table says; none of them tells a LAC."""
    ledgers = Ledgers()
    await ledgers.start()
    if apache:
        for name in NAMES:
            await make_cookie(ledgers.store, name, ours=False)
    writer = await ledgers.client.create()
    writer.abandon()
    ledger_id = writer.ledger_id
    for entry_id, states in enumerate(table):
        for name, state in zip(NAMES, states, strict=True):
            if state in (GOOD, DAMAGED):
                put(ledgers, name, ledger_id, entry_id, payload_of(entry_id), length=11 * (entry_id + 1))
            if state == DAMAGED:
                ledgers.bookies.damage(name, ledger_id, entry_id)
            if state == UNREADABLE:
                ledgers.bookies.answer(V2Status.IO_ERROR, bookie=name, kind="read", entry_id=entry_id, fence=True)
    return ledgers, ledger_id


def payload_of(entry_id: int) -> bytes:
    return b"entry %5d" % entry_id


def outcome(
    table: list[tuple[str, str, str]],
    how: LedgerSettings,
    *,
    batches: bool,
    apache: bool,
    carried: Iterable[int] = (),
) -> Outcome:
    """(what happened, last entry, length, payloads) of one recovery."""

    async def run() -> Outcome:
        ledgers, ledger_id = await prepared(table, apache=apache)
        try:
            for name in NAMES:
                ledgers.bookies[name].serves_batches = batches
            client = await ledgers.other_client(how)
            try:
                reader = await client.open(
                    ledger_id, recover=True, carried={entry_id: payload_of(entry_id) for entry_id in carried}
                )
            except BokiError as error:
                metadata = await ledgers.metadata(ledger_id)
                return f"{type(error).__name__}, {metadata.state.name}", -1, -1, []
            metadata, last = reader.metadata, reader.last_entry
            bodies = []
            for entry_id in range(last + 1):
                assert len(ledgers.copies(ledger_id, metadata, entry_id)) >= metadata.ack_quorum
                bodies.append(bytes((await reader.read(entry_id, entry_id))[0]))
            return "closed", last, metadata.length, bodies
        finally:
            await ledgers.close()

    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        return runner.run(run())


def ends(table: list[tuple[str, str, str]]) -> set[int | None]:
    """Where such a ledger may end, None for not yet: one valid copy is proof, and so are two denials, whichever comes first."""
    found: set[int | None] = set()
    for entry_id, states in enumerate(table):
        if states.count(MISSING) >= 2:
            found.add(entry_id - 1)
        if GOOD not in states:
            return found if states.count(MISSING) >= 2 else found | {None}
    return found | {len(table) - 1}


@given(entries, st.booleans())
@settings(max_examples=60, deadline=None)
def test_batches_change_nothing_about_the_end(table: list[tuple[str, str, str]], apache: bool) -> None:
    expected = ends(table)
    one = outcome(table, SEQUENTIAL, batches=False, apache=False)
    many = outcome(table, BATCHED, batches=True, apache=apache)
    for what, last, length, bodies in (one, many):
        if what == "closed":
            assert last in expected and length == 11 * (last + 1)
            assert bodies == [payload_of(entry_id) for entry_id in range(last + 1)]
        else:
            assert what == "RecoveryFailed, IN_RECOVERY" and None in expected
    if len(expected) == 1:
        assert one == many


def ends_with(table: list[tuple[str, str, str]], carried: set[int]) -> set[int | str]:
    """As `ends`, with entries that are carried: below the last of them only all three denials count, and are evidence."""
    floor = max(carried, default=-1) + 1
    found: set[int | str] = set()
    for entry_id in range(max(len(table), floor) + 1):
        states = table[entry_id] if entry_id < len(table) else (MISSING,) * 3
        if entry_id in carried:
            continue
        if entry_id < floor and states.count(MISSING) == 3:
            return {*found, "LedgerDataMissing, IN_RECOVERY"}
        if entry_id >= floor and states.count(MISSING) >= 2:
            found.add(entry_id - 1)
        if GOOD not in states:
            return found if entry_id - 1 in found else {*found, "RecoveryFailed, IN_RECOVERY"}
    return found


@given(entries, carried_entries, st.booleans())
@example([(GOOD,) * 3, (GOOD,) * 3, (UNREADABLE,) * 3], {2}, False)
@example([(GOOD,) * 3] * 9 + [(MISSING,) * 3] * 2 + [(DAMAGED,) * 3, (GOOD,) * 3], {9, 10, 11}, True)
@settings(max_examples=60, deadline=None)
def test_what_is_carried_fills_gaps_whichever_way_other_entries_are_read(
    table: list[tuple[str, str, str]], carried: set[int], apache: bool
) -> None:
    expected = ends_with(table, carried)
    for how, batches, foreign in ((SEQUENTIAL, False, False), (BATCHED, True, apache)):
        what, last, length, bodies = outcome(table, how, batches=batches, apache=foreign, carried=carried)
        if what == "closed":
            assert last in expected and length == 11 * (last + 1)
            assert bodies == [payload_of(entry_id) for entry_id in range(last + 1)]
        else:
            assert what in expected


@pytest.mark.parametrize("size", [0, 1, 3, 4, 5, 9, 10, 11, 13, 28, 29])
def test_whole_ledgers_of_any_length_around_a_batch_are_recovered(size: int) -> None:
    assert outcome([(GOOD, GOOD, GOOD)] * size, BATCHED, batches=True, apache=False)[:2] == ("closed", size - 1)


def test_a_gap_ends_the_ledger_although_batches_bring_what_lies_beyond() -> None:
    table = [(GOOD, GOOD, GOOD)] * 10 + [(MISSING, MISSING, MISSING)] * 4 + [(GOOD, GOOD, GOOD)] * 3
    assert outcome(table, BATCHED, batches=True, apache=False)[:2] == ("closed", 9)


async def test_a_long_tail_is_read_in_batches(ledgers: Ledgers) -> None:
    made, ledger_id = await prepared([(GOOD, GOOD, GOOD)] * 400, apache=False)
    made.bookies.seen.clear()
    client = await made.other_client()
    assert (await client.open(ledger_id, recover=True)).last_entry == 399
    reads = [message for message in made.bookies.seen if message.kind == "read" and not message.answer]
    singles = [message for message in reads if message.entries == 1]
    assert len(singles) <= 3 * (4 * end_search.FIRST_READS + 2)
    assert all(message.fence for message in singles if message.entry_id > 0)
    await made.close()
