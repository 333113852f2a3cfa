"""Bugs of other logs than BookKeeper: Pravega, Restate, LogDevice, NATS JetStream, Redpanda, Bufstream, users of ZooKeeper."""

from __future__ import annotations

from typing import Final

from itests.museum.exhibit import Exhibit, Hunt, Scenario
from itests.museum.taken import taken
from itests.mutations.patch import patch

_RESTATE: Final = "https://github.com/restatedev/restate/issues"
_JEPSEN: Final = "https://jepsen.io/analyses"

EXHIBITS: Final[tuple[Exhibit, ...]] = (
    Exhibit(
        system="Pravega",
        issue="#1900",
        link="https://github.com/pravega/pravega/issues/1900",
        lost="what the old owner wrote after the new one had looked",
        story="A new owner of a log opened the ledgers of its predecessor to read them, without recovery. So nobody fenced them "
        "and nobody agreed where they end: the old owner, which was only slow, went on to write and to acknowledge, and the new "
        "owner had read less than that.",
        instead="The next term begins after the metalog of the one before was fenced, recovered and closed; its end is in the "
        "term's record, and everybody checks it.",
        mutation=patch(r"""
            the old metalog is opened without recovery
            metalog
            -reader = await ledgers.open(installed.metalog_ledger, recover=True)
            +reader = await ledgers.open(installed.metalog_ledger, recover=False)
            @@
            -        assert reader.closed, "recovery closes the ledger, or raises"
        """),
        found=Hunt("cluster", "harsh", ("4 sealed", "3 sealed")),
    ),
    Exhibit(
        system="Restate",
        issue="#5054",
        link=f"{_RESTATE}/5054",
        lost="nothing, but readers never heard of anything new",
        story="A reader had reached the tail of a segment and waited there. The segment was sealed and the log went on in "
        "another one; the reader was not told, and stayed parked at a tail that could not move any more, without a line in any "
        "log.",
        instead="Who follows a log watches the view beside the connection to its sequencer; either wakes it.",
        mutation=patch(r'''
            the view wakes no follower
            metalog metalog/tests/follow/test_follower.py::test_a_zombie_sequencer_does_not_hold_a_follower_back
            -        """The feed has a new view, or ended."""
            +        if self._started_term:
            +            return
        '''),
        found=Scenario("Timeout"),
    ),
    Exhibit(
        system="Restate",
        issue="#5110",
        link=f"{_RESTATE}/5110",
        lost="the node that repaired",
        story="Two nodes repaired the same tail at once. One of them finished and moved the tail; the other one found the tail "
        "where it did not expect it, and panicked.",
        instead="Any number of recoveries may run at once. Who finds that the ledger was closed meanwhile takes that end for "
        "its own.",
        mutation=patch(r"""
            a recovery that comes second panics
            ledger
            -            if current.state is LedgerState.CLOSED:
            -                return None
            +            assert current.state is not LedgerState.CLOSED, 'the tail moved'
                         if current.state is not LedgerState.IN_RECOVERY or
        """),
        found=Hunt("ledgers", "races", ("crash",)),
    ),
    Exhibit(
        system="Restate",
        issue="#2885, #2887",
        link=f"{_RESTATE}/2885",
        lost="nothing, but nobody could append any more",
        story="Sealing a segment and extending the chain by the next one are two steps. The node that did them stopped between "
        "the two. The log was sealed, nobody was about to extend it, and it stayed so.",
        instead="Each step of a term change may be repeated by anybody and meets what was done as done: a record that exists "
        "with the same content is success.",
        mutation=patch(r"""
            a term that was sealed by another driver is an error
            metalog metalog/tests/terms/test_term_change.py::test_a_record_that_is_there_already_is_taken_as_it_is
            -        if not found.same_term_as(record):
            +        if found.term == record.term:
        """),
        found=Scenario("TermRecordConflict"),
    ),
    Exhibit(
        system="LogDevice",
        issue="SequencerIntegrationTest, SilentDuplicates (three of four were disabled)",
        link="https://github.com/facebookarchive/LogDevice",
        lost="exactly-once: a record was in the log twice",
        story="An append was stored, and the sequencer died before it could say so. The client sent it again to the next "
        "sequencer, which knew nothing of the first try and stored it under another number. Readers got both.",
        instead="Every append has a writer and a number, dense from 1. The log itself decides each number once; whatever comes "
        "again gets the answer of the first.",
        mutation=patch(r"""
            what comes again is decided again
            logbook
                     first, stop = run.first, run.first + run.count
            +        state.last = min(state.last, first - 1)
                     fresh = state.last + 1
        """),
        found=Hunt("cluster", "failovers", ("history", "duplicate", "duplicated")),
    ),
    Exhibit(
        system="LogDevice",
        issue="log at the highest epoch and sequence number",
        link="https://github.com/facebookarchive/LogDevice",
        lost="order: numbers after the last one begin anew, or belong to another term",
        story="Numbers of records are an epoch and an offset in fixed bits. At the last offset of an epoch the next record needs "
        "another epoch; arithmetic that only adds one gives it a number that means something else.",
        instead="A sequencer orders nothing past the last position: it ends its term, and the next one begins.",
        mutation=patch(r"""
            positions go on beyond the last one of a term
            metalog metalog/tests/entries/test_progress.py::test_the_last_position_of_a_term
            -        if end_pos > limits.POSITION_MAX:
            +        if end_pos > 2 * limits.POSITION_MAX:
        """),
        found=Scenario("DID NOT RAISE"),
    ),
    Exhibit(
        system="NATS JetStream",
        issue="2.12.1, lazy flush",
        link=f"{_JEPSEN}/nats-2.12.1",
        lost="acknowledged messages, up to two minutes of them, when machines lost power together",
        story="Writes were acknowledged when they were in the memory of the operating system, and flushed every two minutes. A "
        "power cut of a few machines took what clients had been told was safe.",
        instead="An acknowledgement leaves a bookie after the flush of its journal. What is weaker has a name of its own and "
        "must be asked for.",
        mutation=taken("the journal is written without a flush"),
        found=Hunt("ledgers", "races", ("1 acked", "1 copies", "2 closed", "2 fence")),
    ),
    Exhibit(
        system="NATS JetStream",
        issue="2.12.1, single bit flips",
        link=f"{_JEPSEN}/nats-2.12.1",
        lost="whole streams, because of one damaged file on a minority of nodes",
        story="A flipped bit or a cut file on one node made that node believe that it had less than it had, or nothing. It was "
        "believed by the others, and what they still held was given up.",
        instead="A copy that fails its checksum is no answer, neither have nor never had: recovery asks the others and waits.",
        mutation=taken("a damaged copy counts as an answer"),
    ),
    Exhibit(
        system="Redpanda",
        issue="21.10.1, duplicates after a change of leader",
        link=f"{_JEPSEN}/redpanda-21.10.1",
        lost="exactly-once: with idempotence on, a retry after a change of leader was stored again",
        story="What a producer had sent was remembered by the leader. The next leader did not know all of it, took the number that "
        "came first for the first one, and stored the retry of a message that was in the log already.",
        instead="What writers sent is state of the log: it follows from the records alone, across terms, on every engine.",
        mutation=patch(r"""
            writers are forgotten with the term
            logbook
            +        self.verdicts.restore(type(self.verdicts.writers)(), {})
                     places = self._current[log] = self.places.begin(term, log, slots)
            @@
            -        if begins:  # else nothing is decided, and nothing is kept
            +        state.last, state.floor = run.first - 1, run.first
            +        if run.count:
        """),
        found=Hunt("cluster", "failovers", ("history", "duplicate", "duplicated")),
    ),
    Exhibit(
        system="Bufstream",
        issue="0.1.0, spurious zero offsets",
        link=f"{_JEPSEN}/bufstream-0.1.0",
        lost="where acknowledged records are: some were said to be at offset 0",
        story="A producer that sent a batch again was told that it had been stored, at offset 0, whatever its real place. "
        "Whoever kept the offset pointed to another record.",
        instead="An answer is kept with its place: what is sent again hears the first seqnum.",
        mutation=patch(r"""
            a duplicate is answered with place zero
            logbook
            -            seqnum = kept.first_seqnum + first - kept.first if kept.verdict == COMMITTED else 0
            +            seqnum = 0
        """),
        found=Hunt("cluster", "failovers", ("history", "crash")),
    ),
    Exhibit(
        system="Bufstream",
        issue="0.1.0, loss in a healthy cluster",
        link=f"{_JEPSEN}/bufstream-0.1.0",
        lost="acknowledged writes, without any fault",
        story="Producers were told that records were stored, and no consumer ever saw them, although no process and no link had "
        "failed: what was told ran ahead of what was decided.",
        instead="An entry counts when its ack quorum has it and all entries before it are complete. One ack less, and a recovery "
        "that comes by at the wrong moment ends the ledger before it.",
        mutation=patch(r"""
            one ack less is a quorum
            ledger
            -            if mask.bit_count() < quorum:
            +            if mask.bit_count() < quorum - 1:
        """),
        found=Hunt("ledgers", "calm", ("1 acked", "1 copies", "crash")),
    ),
    Exhibit(
        system="Users of ZooKeeper",
        issue="a lost answer is taken for a failure",
        link="https://zookeeper.apache.org/doc/current/zookeeperProgrammers.html#ch_zkSessions",
        lost="the segment that was just installed: its owner deleted it, or wrote beside it",
        story="A compare-and-swap was sent and the connection broke. The client took that for a failure and went on as if nothing "
        "had been written. The write had been applied, or was applied a moment later.",
        instead="A lost answer is *unknown*. It is settled by repeating the same write at the same version until the version has "
        "moved, and then looking whose value is there.",
        mutation=patch(r"""
            a lost answer is a failed write
            common common/tests/metadata/test_settle.py::test_a_write_alone_is_applied_once
                         return await store.set(path, value, version=version, creating=creating)
                     except (MetadataUnavailable, MetadataUnknown) as error:
            +            if isinstance(error, MetadataUnknown):
            +                raise BadVersion('taken for lost') from error
                         await attempts.again(error)
        """),
    ),
    Exhibit(
        system="Users of ZooKeeper",
        issue="a zombie after its session expired",
        link="https://zookeeper.apache.org/doc/current/zookeeperProgrammers.html#ch_zkSessions",
        lost="what the successor wrote: the zombie closed the ledger at its own end",
        story="A writer was cut off, its session expired and another process took its ledger over. The writer came back, did not "
        "know that it was a zombie, and finished what it had begun.",
        instead="Sessions prove nothing. A ledger in recovery is closed by recoveries only, and bookies take nothing more from a "
        "writer that was fenced.",
        mutation=taken("a writer closes over a recovery"),
    ),
    Exhibit(
        system="Logs with a separate seal",
        issue="a seal races an append at the same place",
        link="https://www.usenix.org/conference/osdi20/presentation/balakrishnan",
        lost="the newest acknowledged entries",
        story="The tail was taken from what nodes knew to be acknowledged when they were sealed. An append that had its quorum, "
        "but of which nobody had heard yet that it was complete, was at the very place where the log was sealed.",
        instead="What bookies know to be acknowledged is where recovery begins to read, not where the ledger ends.",
        mutation=patch(r"""
            a ledger ends where it is known to be acknowledged
            ledger
            -        self.end: int | None = None
            +        self.end: int | None = start
        """),
        found=Hunt("ledgers", "races", ("1 acked", "2 closed")),
    ),
    Exhibit(
        system="Any log",
        issue="a trim races a recovery",
        link="../ARCHITECTURE.md",
        lost="nothing, but a reader that had fallen behind stood still for ever",
        story="A reader was rebuilding its state from the log while others trimmed it, and what it had yet to read was deleted. To it "
        "that was data that is away for a moment: it tried again, and again.",
        instead="That a term was reclaimed stands in its record, a grace before anything is deleted. An engine that has yet to apply "
        "such a term begins anew, with the snapshot that covers it.",
        mutation=patch(r"""
            who is behind what was reclaimed waits for it
            logbook logbook/tests/engine/test_housekeeping.py::test_an_engine_that_fell_behind_what_was_reclaimed_begins_anew
            -            if record.reclaimed:
            +            if record.reclaimed and position is None:
                             return record
        """),
        found=Scenario("TimeoutError"),
    ),
)
