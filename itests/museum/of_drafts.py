"""Executions that broke earlier drafts of our own design, found by models before there was code."""

from __future__ import annotations

from typing import Final

from itests.museum.exhibit import Exhibit, Hunt, Scenario
from itests.museum.taken import taken
from itests.mutations.mutation import Mutation

_SYSTEM: Final = "Our own drafts"
_LINK: Final = "../ARCHITECTURE.md"

EXHIBITS: Final[tuple[Exhibit, ...]] = (
    Exhibit(
        system=_SYSTEM,
        issue="nothing says as of when the next term was decided",
        link=_LINK,
        lost="order: two ledgers were the metalog of one term, and both acknowledged",
        story="A driver read who serves, sealed that term and was slow. Another driver did the same and installed the next term. "
        "The first one wrote what it had prepared over it: the same term number, another ledger, another sequencer.",
        instead="There is one small value, the view. It is swapped at the version that was read before the seal; who loses the "
        "race begins again.",
        mutation=Mutation(
            "the view is swapped at its newest version",
            "metalog",
            (
                (
                    "encode_view(wanted), version=found.version)",
                    "encode_view(wanted), version=(await read_view(metadata)).version)",
                ),
            ),
            "",
        ),
        found=Hunt("cluster", "metadata", ("4 view", "4 sealed", "3 sealed")),
    ),
    Exhibit(
        system=_SYSTEM,
        issue="a metalog entry is applied before its quorum has it",
        link=_LINK,
        lost="acknowledged appends, and engines had different indexes",
        story="A cut was on one bookie. An engine saw it, applied it and answered the appends that it orders. The bookie became "
        "unreachable, recovery had two denials and closed the metalog before that cut.",
        instead="Only entries that recovery cannot drop are applied: those of a closed ledger, and those that the sequencer says "
        "its ack quorum has.",
        mutation=Mutation(
            "cuts are pushed before their quorum has them",
            "metalog",
            (
                (
                    "            submitted = self._writer.submit(data)\n",
                    "            submitted = self._writer.submit(data)\n            self._push(expected, data)\n",
                ),
                ("        self._push(first, data)\n        served =", "        served ="),
            ),
            "",
        ),
        found=Hunt("cluster", "failovers", ("crash", "history", "lost", "7 index", "7 verdicts", "liveness")),
    ),
    Exhibit(
        system=_SYSTEM,
        issue="the sequencer is asked where the log ends",
        link=_LINK,
        lost="an append that was answered: a linearizable read did not see it",
        story="A sequencer was cut off, another driver closed its metalog, and the next term acknowledged an append. The old one "
        "did not know. A reader asked it where the log ends, and was told what it remembered.",
        instead="The word of a sequencer proves nothing, an entry does: a reader waits for a metalog entry that began after it "
        "asked and was acknowledged. A metalog that was closed takes none.",
        mutation=Mutation(
            "a barrier is answered without a new entry",
            "metalog",
            (
                (
                    "        self._waiters.barrier(_Waiter(protocol.OP_BARRIER, peer, request_id))\n",
                    (
                        "        known = protocol.encode_position(Position(self.term, self.recent.end))\n"
                        "        peer.respond(request_id, protocol.OP_BARRIER, known)\n"
                    ),
                ),
            ),
            "metalog/tests/test_term_server.py::test_a_fenced_sequencer_answers_no_order_and_no_barrier",
        ),
        found=Scenario("DID NOT RAISE"),
    ),
    Exhibit(
        system=_SYSTEM,
        issue="reading again settles a lost answer",
        link=_LINK,
        lost="a change of an ensemble: it landed after it was given up",
        story="The answer to a swap was lost. The writer read again, saw the old version, and took the swap for failed. It was "
        "still under way, and landed after that.",
        instead="Only a later version settles it: the same swap is repeated at the same version until the version moves.",
        mutation=taken("a read settles a lost answer"),
        found=Scenario(),
    ),
    Exhibit(
        system=_SYSTEM,
        issue="a loser does not consume its number",
        link=_LINK,
        lost="the answer *no*: an append that was refused was in the log later",
        story="A conditional append lost, and its caller was told. Its number stayed free. A delayed copy of the same request came "
        "when the condition held by chance, and won. Told no, joined yes.",
        instead="A number is decided once and for ever, whatever the verdict is.",
        mutation=Mutation(
            "a loser does not consume its number",
            "logbook",
            (
                (
                    (
                        "            state.decided(number, 1, 0, CONFLICT, actual)\n"
                        "            decision.answers.append(Answer(at, number, 1, 0, CONFLICT, actual))\n"
                        "            decision.lose(start + record, start + record + 1)\n"
                    ),
                    (
                        "            decision.answers.append(Answer(at, number, 1, 0, CONFLICT, actual))\n"
                        "            decision.lose(start + record, start + run.count)\n            return\n"
                    ),
                ),
            ),
            "logbook/tests/engine/test_verdict.py::test_a_losing_number_is_decided_for_ever",
        ),
        found=Scenario(),
    ),
    Exhibit(
        system=_SYSTEM,
        issue="every higher number is new",
        link=_LINK,
        lost="records: the first of two pipelined appends was taken for a duplicate",
        story="Numbers 1 and 2 were under way. 1 was dropped with its shard, 2 survived. When 1 came again, it was below the last "
        "number and was answered as a duplicate; it was nowhere.",
        instead="Numbers are dense: one that leaves out another is refused, not decided, and the client sends from the lowest.",
        mutation=Mutation(
            "numbers may leave out others",
            "logbook",
            (
                (
                    (
                        "            decision.answers.append(Answer(at, first, run.count, state.last, GAP, _NOBODY))\n"
                        "            decision.lose(start, start + run.count)\n            return\n"
                    ),
                    "            state.last, fresh = first - 1, first\n",
                ),
            ),
            "logbook/tests/engine/test_verdict.py::test_a_gap_decides_nothing_and_tells_the_last_number",
        ),
        found=Scenario(),
    ),
    Exhibit(
        system=_SYSTEM,
        issue="an answer as soon as the cut is there",
        link=_LINK,
        lost="where a record is: the caller got the number of the copy that lost",
        story="Whoever had sent a record was answered when a cut covered it. But the record had been sent twice, through two shards, "
        "and the copy under that cut was the second one: it joined nothing.",
        instead="An answer leaves when the index has passed the cut, with the verdict: a copy gets the seqnum of the first.",
        mutation=Mutation(
            "a copy is answered with its own place",
            "logbook",
            (
                (
                    "            decision.answers.extend(state.recall(at, first, known))\n",
                    "            decision.answers.append(Answer(at, first, known - first, start_seqnum, COMMITTED, _NOBODY))\n",
                ),
            ),
            "",
        ),
        found=Hunt("cluster", "harsh", ("history", "lost")),
    ),
    Exhibit(
        system=_SYSTEM,
        issue="limbo after every start that was not clean",
        link=_LINK,
        lost="nothing, but after one power cut no ledger could be recovered any more",
        story="A bookie that had not been stopped cleanly did not trust its memory: it fenced what it held, and answered *unknown* "
        "for what it did not hold. After a power cut all bookies did so. Recovery needs denials, and got none from anybody.",
        instead="With an intact journal a bookie knows all that it acknowledged. Limbo is for bookies whose journal, index or disk "
        "is missing or damaged.",
        mutation=Mutation(
            "limbo after every start",
            "bookie",
            (
                (
                    (
                        "        limbo = await Limbo.load(disk, bookie.raw)\n"
                        "        storage = await open_storage(sight if limbo is None else LimboSight(limbo, sight))\n"
                    ),
                    (
                        "        limbo = await Limbo.load(disk, bookie.raw)\n"
                        "        doubted = {} if limbo else (await survey(metadata, bookie.bookie_id, owns=owns)).listed\n"
                        "        if doubted:\n            limbo = await Limbo.begin(disk, bookie.raw, doubted)\n"
                        "        storage = await open_storage(sight if limbo is None else LimboSight(limbo, sight))\n"
                    ),
                ),
            ),
            "",
        ),
        found=Hunt("ledgers", "races", ("liveness",)),
    ),
)
