"""`boki log lost TERM SHARD FIRST STOP`: declares ordered entries of a shard lost, by a command in their log (docs/adr/0013).

It asks all replicas of each entry itself, and refuses when one can be had, or when somebody who may have it did not answer;
and so it does when the metalog carries one (ADR 21): readers have it from there. What can be had and is no entry that its cut
means, for engines cannot read it, is as lost as what nobody has.
What a manifest of cold files has is not lost, and who is about to name one is refused (`_not_copied`).
The answers go into the command, as evidence for people (`loss_evidence`). Whether rows of the entries stand follows from the index
snapshot: who declares entries lost that it lacks says so, because what the log decided by them is lost with them.
"""

from __future__ import annotations

import getpass
import platform
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import click
import msgspec

from boki_cli.cluster.metadata_option import metadata_option
from boki_cli.logs.ledger_options import run_with_ledgers
from boki_cli.number_types import Whole
from boki_cli.options import Invocation, command
from boki_common.cluster_token import ClusterToken
from boki_common.errors import BokiError, CorruptData, DigestMismatch, NoSuchEntry, NoSuchLedger, ProtocolError
from boki_common.records.record_batch import RecordBatch
from boki_common.runtime import process
from boki_metalog.entries.loss_evidence import LossEvidence, described, encode_evidence
from boki_metalog.entries.metalog_entry import Lost, MetalogEntry, Open
from boki_metalog.entries.progress import ShardRange

if TYPE_CHECKING:
    from boki_common.ids import Position
    from boki_common.metadata.store import MetadataStore
    from boki_ledger.client import LedgerClient
    from boki_logbook.scan.metalogs import Term
    from boki_logbook.state.snapshot_rules import SnapshotNode
    from boki_metalog.terms.view import View

ENTRIES: Final = 1_024
"""Entries that one command declares lost, at most: each is asked for."""
ANSWERS_LISTED: Final = 16
"""Answers about entries that the evidence contains in full; their number is always given."""


class Refused(BokiError):
    """The entries are not declared lost."""


class _ShardEnds(NamedTuple):
    """A shard's ledger, and after which metalog entry it was ordered how far: (metalog entries, entries of the shard).
    `carried`: its entries that are in the metalog, with their bytes; `ranges`: how cuts name its entries."""

    ledger_id: int
    ends: list[tuple[int, int]]
    carried: dict[int, bytes]
    ranges: list[ShardRange]

    def after(self, metalog_entries: int | None) -> int:
        """Its entries that are ordered by so many metalog entries; None: by all."""
        return max((end for at, end in self.ends if metalog_entries is None or at <= metalog_entries), default=0)


@command(None, "lost", writes=True, short_help="Declare entries lost that no bookie has.")
@click.argument("term", type=Whole(1), metavar="TERM")
@click.argument("shard", type=Whole(0), metavar="SHARD")
@click.argument("first", type=Whole(0), metavar="FIRST")
@click.argument("stop", type=Whole(1), metavar="STOP")
@click.option("--reason", required=True, help="For people: why they are lost, and who says so.")
@click.option("--by", help="Who says so; default: the user and the machine.")
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
    by: str | None,
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
        claimed = LossEvidence(
            reason=reason, by=by or somebody(), time_ms=process.SystemClock().now_ms(), bookies_are_gone=gone
        )
        listed = await declare_lost(store, ledgers, what, claimed, forget_rows=forget_rows)
        if invocation.json:
            invocation.emit(listed)
        else:
            stand = "their rows stand" if listed["indexed"] else "their records join nothing"
            click.echo(f"entries {first} to {stop - 1} of shard {shard} of term {term} are declared lost: {stand}")

    return run_with_ledgers(invocation, metadata, run)


async def declare_lost(
    store: MetadataStore,
    ledgers: LedgerClient,
    what: Lost,
    claimed: LossEvidence,
    *,
    forget_rows: bool,
) -> dict[str, Any]:
    """Gathers the evidence and has the command ordered; returns the answers. `what.evidence` and `indexed` do not count.

    Args:
        claimed: the evidence that a person gives; the rest of it is found out here.

    Raises:
        Refused: see the module. BokiError: unknown whether it was ordered, or it was not; it may be repeated.
    """
    from boki_logbook.scan.metalogs import terms_in
    from boki_logbook.state.snapshots import SnapshotStore
    from boki_metalog.terms.metadata_tree import read_view

    view = (await read_view(store)).view
    term = next((one for one in await terms_in(store) if one.term == what.term), None)
    if term is None:
        raise Refused(f"expected a term below {view.next_term} that was begun, found {what.term}")
    if term.reclaimed:
        raise Refused(f"term {what.term} was reclaimed: nothing of it is needed")
    shard = await _shard(ledgers, term, what)
    if what.stop_entry > shard.after(None) or what.first_entry >= what.stop_entry:
        raise Refused(
            f"expected entries below {shard.after(None)}, which are ordered of shard {what.shard} of term {what.term}, found "
            f"{what.first_entry} to below {what.stop_entry}"
        )
    if what.stop_entry - what.first_entry > ENTRIES:
        raise Refused(f"expected at most {ENTRIES} entries at once, found {what.stop_entry - what.first_entry}")
    answers = await _answers(ledgers, shard, what, gone=claimed.bookies_are_gone)
    kept = [
        entry for entry in shard.carried if what.first_entry <= entry < what.stop_entry and entry not in answers.unfit
    ]
    if kept:
        raise Refused(
            f"the metalog of term {what.term} carries entry {kept[0]} of shard {what.shard}"
            + (f", and {len(kept) - 1} more of these" if len(kept) > 1 else "")
            + ": it is not lost, whoever reads it finds it there",
            entry=kept[0],
        )
    node, _ = await SnapshotStore(metadata=store, ledgers=ledgers, incarnation="").newest()
    indexed = _indexed(node, term, shard, what, forget_rows=forget_rows)
    evidence = encode_evidence(
        msgspec.structs.replace(
            claimed,
            ledger=shard.ledger_id,
            first=what.first_entry,
            stop=what.stop_entry,
            indexed=indexed,
            answers=answers.listed,
            bookies=await _words(ledgers, shard.ledger_id, answers.listed),
        )
    )
    await _not_copied(store, term)
    position = await _order(store, view, term, what._replace(evidence=evidence, indexed=indexed), ledgers.token)
    return described(evidence) | {"term": position.term, "entry": position.entry}


async def _words(ledgers: LedgerClient, ledger_id: int, listed: Iterable[str]) -> dict[str, dict[str, str]]:
    """What each bookie says of these entries; nothing of a ledger that nobody knows."""
    found = {}
    try:
        for entry in listed:
            words = await ledgers.words_of_replicas(ledger_id, int(entry))
            found[entry] = {str(bookie): word for bookie, word in words.items()}
    except (NoSuchLedger, ProtocolError, CorruptData):
        pass  # no metadata says who was asked
    return found


def somebody() -> str:
    """The user and the machine, as far as they have names."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError, ImportError):
        user = "somebody"
    return f"{user}@{platform.node() or 'a machine'}"


async def _shard(ledgers: LedgerClient, term: Term, what: Lost) -> _ShardEnds:
    """The metalog's word on the shard."""
    from boki_logbook.scan.metalogs import entries_of

    found: _ShardEnds | None = None
    count = 0
    async for entry in entries_of(ledgers, term):
        count += 1
        for one in entry.commands:
            if isinstance(one, Open) and one.shard == what.shard:
                found = _ShardEnds(one.ledger_id, [], {}, [])
        if found is not None:
            _take(found, count, entry, what.shard)
    if found is None:
        raise Refused(f"term {what.term} has no shard {what.shard}", shard=what.shard)
    return found


def _take(found: _ShardEnds, count: int, entry: MetalogEntry, shard: int) -> None:
    """The next metalog entry's word on the shard; with it there are so many."""
    for _, records_end, entries_end in (one for one in entry.shards if one.shard == shard):
        before = found.ranges[-1] if found.ranges else ShardRange(shard, 0, 0, 0, 0, 0)
        first_record, first_entry = before.first_record + before.record_count, before.first_entry + before.entry_count
        found.ends.append((count, entries_end))
        if entries_end > first_entry:
            found.ranges.append(
                ShardRange(shard, first_record, records_end - first_record, first_entry, entries_end - first_entry, 0)
            )
        found.carried.update((entries_end - 1, one.body) for one in entry.carried if one.shard == shard)


class _Answers(NamedTuple):
    """The answers of replicas about the first entries that cannot be had; and those of which the metalog has no readable copy either."""

    listed: dict[str, str]
    unfit: list[int]


async def _answers(ledgers: LedgerClient, shard: _ShardEnds, what: Lost, *, gone: bool) -> _Answers:
    """What the replicas say of each entry. Raises Refused when it is not certain that nobody has it."""
    from boki_logbook.read.entry_fit import RangeWalk

    answers = _Answers({}, [])
    for one in shard.ranges:
        stop = one.first_entry + one.entry_count
        if stop <= what.first_entry or one.first_entry >= what.stop_entry:
            continue
        walk = RangeWalk(what.term, one)
        for entry in range(one.first_entry, min(stop, what.stop_entry)):
            found, answer = await _ask(ledgers, shard.ledger_id, entry, gone=gone)
            fault = None if found is None else walk.fault_of(found)
            usable = found if fault is None else None
            carried = _parsed(shard.carried.get(entry))
            if usable is None and carried is not None and walk.fault_of(carried) is None:
                usable = carried
            walk.take(usable)
            if entry < what.first_entry:
                continue
            if found is not None and found is usable:
                raise Refused(f"entry {entry} of ledger {shard.ledger_id} can be read: it is not lost", entry=entry)
            if usable is None:
                answers.unfit.append(entry)
            answer = fault or answer
            if len(answers.listed) < ANSWERS_LISTED:
                answers.listed[str(entry)] = answer
    return answers


async def _ask(ledgers: LedgerClient, ledger_id: int, entry: int, *, gone: bool) -> tuple[RecordBatch | None, str]:
    """An entry, or None and why nobody has one that can be read. Raises Refused: it is not certain."""
    try:
        reader = await ledgers.open(ledger_id, recover=False)
        try:
            reader.confirm(entry)
            (payload,) = await reader.read(entry, entry)
        finally:
            await reader.close()
        return RecordBatch.parse(memoryview(payload)), ""
    except (NoSuchEntry, NoSuchLedger, DigestMismatch, ProtocolError) as error:
        return None, f"{type(error).__name__}: {error}"
    except BokiError as error:
        if not gone:
            raise Refused(
                f"not everybody who may have entry {entry} of ledger {ledger_id} answered ({error}): try again, or say "
                "--bookies-are-gone",
                entry=entry,
            ) from error
        return None, f"{type(error).__name__}: {error}"


def _parsed(body: bytes | None) -> RecordBatch | None:
    try:
        return None if body is None else RecordBatch.parse(memoryview(body))
    except ProtocolError:
        return None


def _indexed(node: SnapshotNode, term: Term, shard: _ShardEnds, what: Lost, *, forget_rows: bool) -> bool:
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


async def _not_copied(store: MetadataStore, term: Term) -> None:
    """Makes sure that nobody names files of a sealed term while its entries are declared lost: the record is written anew as it is,
    so that who read it before names nothing. Raises Refused: files have the term's records; BokiError: try again."""
    from boki_metalog.terms.term_record import COPIED, decode_record, term_path

    if term.end is None:
        return
    value, version = await store.get(term_path(term.term))
    location = decode_record(value, term.term).location
    if location.kind == COPIED:
        raise Refused(
            f"the live records of term {term.term} were copied into files, which have them: {location.path}; they are not lost, read "
            "them there"
        )
    await store.set(term_path(term.term), value, version=version)


async def _order(store: MetadataStore, view: View, term: Term, what: Lost, token: ClusterToken) -> Position:
    """Has the command ordered in the entries' log, or in the one that has taken their slots."""
    from boki_common.net.connection import Address
    from boki_metalog.follow.sequencer_member import order_at, sequencer_members

    log = term.log if view.installed(term.log) is not None else view.log_of(term.slots[0].first)
    installed = view.installed(log)
    member = None if installed is None else (await sequencer_members(store)).get(installed.sequencer)
    if installed is None or member is None:
        raise Refused(f"log {log} has no sequencer that is listed: its next term needs one first (boki log roll {log})")
    return await order_at(Address.parse(member.address), installed.term, what, token=token)
