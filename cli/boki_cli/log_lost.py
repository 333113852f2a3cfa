"""`boki log lost TERM SHARD FIRST STOP`: declares ordered entries of a shard lost, by a command in their log (docs/adr/0013).

It asks all replicas of each entry itself, and refuses when one can be had, or when somebody who may have it did not answer;
and so it does when the metalog carries one (ADR 21): readers have it from there.
What it was told goes into the command, as evidence for people. Whether rows of the entries stand follows from the index
snapshot: who declares entries lost that it lacks says so, because what the log decided by them is lost with them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

import click
import msgspec

from boki_cli.ledger_options import run_with_ledgers
from boki_cli.metadata_option import metadata_option
from boki_cli.number_types import Whole
from boki_cli.options import CommandGroup, Invocation, command
from boki_common import limits
from boki_common.errors import BokiError, DigestMismatch, NoSuchEntry, NoSuchLedger
from boki_metalog.metalog_entry import Lost, MetalogEntry, Open, decode

if TYPE_CHECKING:
    from boki_common.ids import Position
    from boki_common.metadata.store import MetadataStore
    from boki_ledger.client import LedgerClient
    from boki_logbook.snapshot_rules import SnapshotNode
    from boki_metalog.view import View

ENTRIES: Final = 1_024
"""Entries that one command declares lost, at most: each is asked for."""
ANSWERS_TOLD: Final = 16
"""Answers about entries that the evidence holds word by word; their number is told."""
ANSWER_CHARACTERS: Final = 300
REASON_CHARACTERS: Final = 1_000
READ_ENTRIES: Final = 64


class Refused(BokiError):
    """The entries are not declared lost."""


class _Term(NamedTuple):
    """Where a term is ordered. `end`: number of its metalog entries; None: it goes on."""

    log: int
    metalog_ledger: int
    end: int | None
    first_slot: int


class _ShardEnds(NamedTuple):
    """A shard's ledger, and after which metalog entry it was ordered how far: (metalog entries, entries of the shard).
    `carried`: its entries that are in the metalog, with their bytes."""

    ledger_id: int
    ends: list[tuple[int, int]]
    carried: list[int]

    def after(self, metalog_entries: int | None) -> int:
        """Its entries that are ordered by so many metalog entries; None: by all."""
        return max((end for at, end in self.ends if metalog_entries is None or at <= metalog_entries), default=0)


def register(group: CommandGroup) -> None:
    """Adds the command to `boki log`."""

    @command(group, "lost", writes=True, short_help="Declare entries lost that no bookie has.")
    @click.argument("term", type=Whole(1), metavar="TERM")
    @click.argument("shard", type=Whole(0), metavar="SHARD")
    @click.argument("first", type=Whole(0), metavar="FIRST")
    @click.argument("stop", type=Whole(1), metavar="STOP")
    @click.option("--reason", required=True, help="For people: why they are lost, and who says so.")
    @click.option("--bookies-are-gone", "gone", is_flag=True, help="Bookies that do not answer never will again.")
    @click.option("--forget-rows", is_flag=True, help="Also entries that the index snapshot does not have.")
    @metadata_option
    def lost(
        invocation: Invocation,
        term: int,
        shard: int,
        first: int,
        stop: int,
        reason: str,
        gone: bool,
        forget_rows: bool,
        metadata: str | None,
    ) -> int:
        """Declare entries FIRST to below STOP of a shard lost, as `boki log verify` tells them.

        Every replica is asked; it is refused when one has an entry. Reads of the records raise, and ranges have a gap. There
        is no way back.
        """

        async def run(ledgers: LedgerClient, store: MetadataStore) -> None:
            what = Lost(term, shard, first, stop, b"")
            told = await declare_lost(store, ledgers, what, reason=reason, gone=gone, forget_rows=forget_rows)
            if invocation.json:
                invocation.emit(told)
            else:
                stand = "their rows stand" if told["indexed"] else "their records join nothing"
                click.echo(f"entries {first} to {stop - 1} of shard {shard} of term {term} are declared lost: {stand}")

        return run_with_ledgers(invocation, metadata, run)


async def declare_lost(
    store: MetadataStore, ledgers: LedgerClient, what: Lost, *, reason: str, gone: bool, forget_rows: bool
) -> dict[str, Any]:
    """Gathers the evidence and has the command ordered; returns what was told. `what.evidence` and `indexed` do not count.

    Raises:
        Refused: see the module. BokiError: unknown whether it was ordered, or it was not; it may be repeated.
    """
    from boki_logbook.snapshots import SnapshotStore
    from boki_metalog.metadata_tree import read_view

    view = (await read_view(store)).view
    term = await _term(store, view, what.term)
    shard = await _shard(ledgers, term, what)
    if what.stop_entry > shard.after(None) or what.first_entry >= what.stop_entry:
        raise Refused(
            f"expected entries below {shard.after(None)}, which are ordered of shard {what.shard} of term {what.term}, found "
            f"{what.first_entry} to below {what.stop_entry}"
        )
    if what.stop_entry - what.first_entry > ENTRIES:
        raise Refused(f"expected at most {ENTRIES} entries at once, found {what.stop_entry - what.first_entry}")
    kept = [entry for entry in shard.carried if what.first_entry <= entry < what.stop_entry]
    if kept:
        raise Refused(
            f"the metalog of term {what.term} carries entry {kept[0]} of shard {what.shard}"
            + (f", and {len(kept) - 1} more of these" if len(kept) > 1 else "")
            + ": it is not lost, whoever reads it finds it there",
            entry=kept[0],
        )
    answers = await _answers(ledgers, shard.ledger_id, what, gone=gone)
    node, _ = await SnapshotStore(metadata=store, ledgers=ledgers, incarnation="").newest()
    indexed = _indexed(node, term, shard, what, forget_rows=forget_rows)
    told = {
        "ledger": shard.ledger_id,
        "first": what.first_entry,
        "stop": what.stop_entry,
        "indexed": indexed,
        "reason": reason[:REASON_CHARACTERS],
        "bookies_are_gone": gone,
        "answers": answers,
    }
    evidence = msgspec.json.encode(told)
    assert len(evidence) <= limits.LOST_EVIDENCE_BYTES, "what is told is bounded"
    position = await _order(store, view, term, what._replace(evidence=evidence, indexed=indexed))
    return told | {"term": position.term, "entry": position.entry}


async def _term(store: MetadataStore, view: View, number: int) -> _Term:
    from boki_metalog.metadata_tree import read_record

    for log, installed in view.logs.items():
        if installed is not None and installed.term == number:
            return _Term(log, installed.metalog_ledger, None, view.slots_of(log)[0].first)
    if not 0 < number < view.next_term:
        raise Refused(f"expected a term below {view.next_term}, found {number}")
    record = await read_record(store, number)
    if record.reclaimed:
        raise Refused(f"term {number} was reclaimed: nothing of it is needed")
    return _Term(record.log, record.metalog_ledger, record.last_entry + 1, record.slots[0].first)


async def _shard(ledgers: LedgerClient, term: _Term, what: Lost) -> _ShardEnds:
    """The metalog's word on the shard."""
    found: _ShardEnds | None = None
    reader = await ledgers.open(term.metalog_ledger, recover=False)
    try:
        end = await reader.read_lac() + 1 if term.end is None else term.end
        for first in range(0, end, READ_ENTRIES):
            payloads = await reader.read(first, min(first + READ_ENTRIES, end) - 1)
            for number, payload in enumerate(payloads, first):
                entry: MetalogEntry = decode(payload)
                for one in entry.commands:
                    if isinstance(one, Open) and one.shard == what.shard:
                        found = _ShardEnds(one.ledger_id, [], [])
                if found is not None:
                    ends = [one.entries_end for one in entry.shards if one.shard == what.shard]
                    found.ends.extend((number + 1, end_of_shard) for end_of_shard in ends)
                    found.carried.extend(end_of_shard - 1 for end_of_shard in ends if _carries(entry, what.shard))
    finally:
        await reader.close()
    if found is None:
        raise Refused(f"term {what.term} has no shard {what.shard}", shard=what.shard)
    return found


def _carries(entry: MetalogEntry, shard: int) -> bool:
    return any(one.shard == shard for one in entry.carried)


async def _answers(ledgers: LedgerClient, ledger_id: int, what: Lost, *, gone: bool) -> dict[str, str]:
    """What the replicas say of each entry. Raises Refused when it is not certain that nobody has it."""
    answers: dict[str, str] = {}
    for entry in range(what.first_entry, what.stop_entry):
        try:
            reader = await ledgers.open(ledger_id, recover=False)
            try:
                reader.confirm(entry)
                await reader.read(entry, entry)
            finally:
                await reader.close()
        except (NoSuchEntry, NoSuchLedger, DigestMismatch) as error:
            answer = f"{type(error).__name__}: {error}"
        except BokiError as error:
            if not gone:
                raise Refused(
                    f"not everybody who may have entry {entry} of ledger {ledger_id} answered ({error}): try again, or say "
                    "--bookies-are-gone",
                    entry=entry,
                ) from error
            answer = f"{type(error).__name__}: {error}"
        else:
            raise Refused(f"entry {entry} of ledger {ledger_id} can be read: it is not lost", entry=entry)
        if len(answers) < ANSWERS_TOLD:
            answers[str(entry)] = answer[:ANSWER_CHARACTERS]
    return answers


def _indexed(node: SnapshotNode, term: _Term, shard: _ShardEnds, what: Lost, *, forget_rows: bool) -> bool:
    """Whether the named snapshot has the entries. Raises Refused when it has some of them, or rows would go unasked."""
    covered = 0
    for point in node.logs:
        if point.log == term.log and point.term >= what.term:
            covered = shard.after(None if point.term > what.term or point.ended else point.entry)
    if what.stop_entry <= covered:
        return True
    if what.first_entry < covered:
        raise Refused(
            f"the index snapshot has entries below {covered} of shard {what.shard}: declare those before and those behind it "
            "lost one after the other",
            covered=covered,
        )
    if not forget_rows:
        raise Refused(
            f"the index snapshot does not have entries from {covered} on of shard {what.shard}, so what the log decided by them "
            f"would be lost as well. While an engine lives that has indexed them, end the term (boki log roll {term.log}) and "
            "wait for its snapshot; if none does, say --forget-rows"
        )
    return False


async def _order(store: MetadataStore, view: View, term: _Term, what: Lost) -> Position:
    """Has the command ordered in the entries' log, or in the one that has taken their slots."""
    from boki_common.net.connection import Address
    from boki_metalog.follower_session import FollowerSession
    from boki_metalog.sequencer_link import SequencerLink, ShardsOfTerm
    from boki_metalog.sequencer_member import sequencer_members

    log = term.log if view.installed(term.log) is not None else view.log_of(term.first_slot)
    installed = view.installed(log)
    member = None if installed is None else (await sequencer_members(store)).get(installed.sequencer)
    if installed is None or member is None:
        raise Refused(f"log {log} has no sequencer that is listed: its next term needs one first (boki log roll {log})")
    session = FollowerSession(installed.term, lambda *_: True, lambda: None)
    await session.connect(Address.parse(member.address), ())
    try:
        return await SequencerLink(session.peer, installed.term, ShardsOfTerm()).order(what)
    finally:
        session.peer.close()
