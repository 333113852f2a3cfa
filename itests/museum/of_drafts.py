"""Executions that broke earlier drafts of our own design, found by models before there was code."""

from __future__ import annotations

from typing import Final

from itests.museum.exhibit import Exhibit, Hunt, Scenario
from itests.museum.taken import taken
from itests.mutations.mutation import Mutation

_SYSTEM: Final = "Our own drafts"
_LINK: Final = "../ARCHITECTURE.md"
_MOVES: Final = "metalog/tests/terms/test_term_change_moves.py"

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
                    "await _swap(metadata, wanted, found.version, ",
                    "await _swap(metadata, wanted, (await ensure_view(metadata)).version, ",
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
                    '        assert submitted == expected, f"metalog entry',
                    '        self._push(expected, data)\n        assert submitted == expected, f"metalog entry',
                ),
                ("        self._push(first, data)\n        rolling = self", "        rolling = self"),
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
        instead="The word of a sequencer proves nothing, that of its bookies does: they take nothing for a metalog that was closed, "
        "neither a new entry nor one that they hold. A reader waits until an ack quorum has taken either, sent after it asked.",
        mutation=Mutation(
            "a barrier is answered from memory",
            "metalog",
            (
                (
                    (
                        "        if len(self._waiters.proving) < limits.BARRIERS_WAITING and self._writer.ask_unfenced(\n"
                        "            partial(self._proven, waiter, self.recent.end)\n"
                        "        ):\n"
                        "            self._waiters.prove(waiter)\n"
                        "        else:\n"
                        "            self._prove_by_entry(waiter)\n"
                    ),
                    "        self._waiters.prove(waiter)\n        self._proven(waiter, self.recent.end, True)\n",
                ),
            ),
            "metalog/tests/sequencer/test_term_server.py::test_a_fenced_sequencer_answers_no_order_and_no_barrier",
        ),
        found=Hunt("cluster", "unaware", ("history", "stale", "wrong trim", "non-monotonic")),
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
            "logbook/tests/engine/writers/test_verdict.py::test_a_losing_number_is_decided_for_ever",
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
            "logbook/tests/engine/writers/test_verdict.py::test_a_gap_decides_nothing_and_tells_the_last_number",
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
        found=Hunt("cluster", "failovers", ("history", "lost")),
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
                        "        storage = await open_storage(validate if limbo is None else LimboValidation(limbo, validate))\n"
                    ),
                    (
                        "        limbo = await Limbo.load(disk, bookie.raw)\n"
                        "        doubted = {} if limbo else (await survey(metadata, bookie.bookie_id, owns=owns)).listed\n"
                        "        if doubted:\n            limbo = await Limbo.begin(disk, bookie.raw, doubted)\n"
                        "        storage = await open_storage(validate if limbo is None else LimboValidation(limbo, validate))\n"
                    ),
                ),
            ),
            "",
        ),
        found=Hunt("ledgers", "races", ("liveness",)),
    ),
    Exhibit(
        system=_SYSTEM,
        issue="seal without coverage",
        link=_LINK,
        lost="acknowledged entries at the end of a ledger, those of metalogs included",
        story="A ledger counted as sealed when one bookie of each write set had answered the fence, and ended where that one knew "
        "of nothing more. The writer went on with the two others, had its quorum and acknowledged what the seal left out.",
        instead="A ledger is sealed when so many bookies answered the fence that no ack quorum is left without one of them; an entry "
        "is absent only when so many deny it.",
        mutation=Mutation(
            "one answer of a write set seals it",
            "ledger",
            (
                (
                    "        if sum(not answers[slot].definite for slot in window) >= ack_quorum:\n",
                    "        if all(not answers[slot].definite for slot in window):\n",
                ),
                ("return Verdict.ABSENT if negatives >= needed", "return Verdict.ABSENT if negatives >= 1"),
            ),
            "",
        ),
        found=Hunt("cluster", "harsh", ("1 acked", "1 copies", "2 closed")),
    ),
    Exhibit(
        system=_SYSTEM,
        issue="cut beyond the final vector",
        link=_LINK,
        lost="appends that were answered; engines disagreed about where the term ends",
        story="The metalog was fenced and closed while the sequencer had a cut under way. It took the cut for written, as it had "
        "taken all before, and pushed it. Engines applied it and answered; the record of the term ends before it.",
        instead="What a fenced sequencer has under way is nothing until the metalog has it. Who applied more than the term's record "
        "says stops.",
        mutation=Mutation(
            "the last cut of a fenced sequencer is pushed",
            "metalog",
            (
                (
                    "    def _writer_failed(self, error: BokiError) -> None:\n        self.end(error)\n",
                    (
                        "    def _writer_failed(self, error: BokiError) -> None:\n"
                        "        if self._in_flight is not None and self.over is None:\n"
                        "            self._acked(self.recent.end)\n"
                        "        self.end(error)\n"
                    ),
                ),
            ),
            "metalog/tests/sequencer/test_sequencer.py::test_a_fenced_sequencer_acknowledges_nothing",
        ),
        found=Hunt(
            "cluster", "metadata", ("history", "lost", "crash", "7 index", "7 verdicts", "5 verdict", "liveness")
        ),
    ),
    Exhibit(
        system=_SYSTEM,
        issue="index row before the cut",
        link=_LINK,
        lost="monotonic reads: a record was read, and through another engine was not there a moment later",
        story="A cut covered entries of two shards, and one of them was not here yet. The rows of the other one were in the index, and "
        "a read showed them. Its reply claimed the position before the cut, for that was all that had been passed; so the next "
        "engine did not wait. (Ours did this, and the walk through this museum found it.)",
        instead="A read shows what lies below the last cut that is applied whole, and that is what its reply claims.",
        mutation=Mutation(
            "rows of half a cut are shown",
            "logbook",
            (
                (
                    "            stop = min(query.stop, covered + 1)\n            found, more",
                    "            stop = query.stop\n            found, more",
                ),
                (
                    "                stop = min(query.stop, covered + 1)\n                found",
                    "                stop = query.stop\n                found",
                ),
                ("stop if stop <= covered else covered + 1)\n", "stop)\n"),
                ("start if start <= covered else covered, stop)\n", "start, stop)\n"),
                ("min(query.start, covered), query.stop, most)\n", "query.start, query.stop, most)\n"),
            ),
            "logbook/tests/engine/read/test_reader.py::test_a_cut_is_shown_whole_or_not_at_all",
        ),
        found=Hunt("cluster", "harsh", ("history", "non-monotonic", "stale")),
    ),
    Exhibit(
        system=_SYSTEM,
        issue="placement is read before and written later",
        link=_LINK,
        lost="order: two terms served one book",
        story="Each log had a chain of terms of its own, and a swap of it looked at that log alone. A driver read who has which slot, "
        "slots of other logs moved, and its swap brought the old placement back.",
        instead="Slots and terms of all logs are one value, swapped at the version that was read before anything was sealed.",
        mutation=Mutation(
            "a swap looks at its own log alone",
            "metalog",
            (
                (
                    "        wanted = term_plan.next_view(found.view, plan, candidates, sealed, token)\n",
                    (
                        "        now = await ensure_view(metadata)\n"
                        "        if any(now.view.installed(log) != found.view.installed(log) for log in plan.sealed):\n"
                        "            continue\n"
                        "        merged = View(1, now.view.next_term, found.view.slots, now.view.logs)\n"
                        "        wanted = term_plan.next_view(merged, plan, candidates, sealed, token)\n"
                    ),
                ),
                ("await _swap(metadata, wanted, found.version, ", "await _swap(metadata, wanted, now.version, "),
            ),
            f"{_MOVES}::test_a_fail_over_of_a_third_log_never_brings_slots_back",
        ),
        found=Scenario("the slots of running term"),
    ),
    Exhibit(
        system=_SYSTEM,
        issue="a number that is drawn apart arrives late",
        link=_LINK,
        lost="order: a new record had a lower seqnum than an old one",
        story="A mover drew the numbers of its terms and was slow. A log failed over with the next number and acknowledged records. "
        "Then the mover came, with the numbers that it had drawn.",
        instead="The numbers of new terms are in the value that installs them. Nobody has one before.",
        mutation=Mutation(
            "the number of a term is drawn before the swap",
            "metalog",
            (
                (
                    "    token = rng.token(TOKEN_BYTES).hex()\n",
                    "    token = rng.token(TOKEN_BYTES).hex()\n    drawn = 0\n",
                ),
                (
                    "        found, known = known or await ensure_view(metadata), None\n        plan = decide(found.view)\n",
                    (
                        "        found, known = known or await ensure_view(metadata), None\n"
                        "        drawn = drawn or found.view.next_term\n        plan = decide(found.view)\n"
                    ),
                ),
                (
                    "        wanted = term_plan.next_view(found.view, plan, candidates, sealed, token)\n",
                    (
                        "        early = View(1, drawn, found.view.slots, found.view.logs)\n"
                        "        wanted = term_plan.next_view(early, plan, candidates, sealed, token)\n"
                        "        next_term = max(found.view.next_term, wanted.next_term)\n"
                        "        wanted = View(1, next_term, wanted.slots, wanted.logs)\n"
                    ),
                ),
            ),
            f"{_MOVES}::test_drivers_that_race_at_every_pair_of_steps",
        ),
        found=Scenario("was drawn before and arrives late"),
    ),
    Exhibit(
        system=_SYSTEM,
        issue="the target of a move keeps its running term",
        link=_LINK,
        lost="order: the book went from a higher term back to a lower one",
        story="Only the log that gave the slot away was sealed. The log that got it went on in the term it had, whose number was "
        "lower: what was appended after the move sorted before what was there.",
        instead="Source and target get new terms in the same swap. The slots of a term never change.",
        mutation=Mutation(
            "only the source of a move gets a new term",
            "metalog",
            (
                (
                    (
                        "    logs = slot_rules.concerned(view.per_slot, after)\n"
                        "    return Plan(logs, after) if logs else None\n"
                    ),
                    (
                        "    concerned = slot_rules.concerned(view.per_slot, after)\n"
                        "    logs = tuple(log for log in concerned if after.count(log) < view.per_slot.count(log))\n"
                        "    return Plan(logs, after) if logs else None\n"
                    ),
                ),
                (
                    (
                        "        for log in slot_rules.concerned(self.per_slot, after):\n"
                        '            assert log in terms or log in without, f"the slots of log {log} change, so its term must"\n'
                    ),
                    "",
                ),
            ),
            f"{_MOVES}::test_slots_move_with_one_swap",
        ),
        found=Scenario("the slots of running term"),
    ),
    Exhibit(
        system=_SYSTEM,
        issue="trim of the future",
        link=_LINK,
        lost="records that were appended after the trim",
        story="Somebody trimmed below a number of another book, or below the largest there is, to mean *all*. The mark was kept as it "
        "came, and whatever was appended afterwards lay below it.",
        instead="A trim acts on what is ordered before it: a mark is at most one above the newest record of its stream.",
        mutation=Mutation(
            "a mark is kept as it came",
            "logbook",
            (("            mark = min(before, self.newest(book, tag) + 1)\n", "            mark = before\n"),),
            "logbook/tests/engine/state/test_state.py::test_a_trim_of_the_future_kills_nothing_that_comes_later",
        ),
        found=Scenario(),
    ),
    Exhibit(
        system=_SYSTEM,
        issue="a metalog goes with the trims that were in it",
        link=_LINK,
        lost="trims, verdicts and numbers of writers, for the engine that started next",
        story="All records of a term were trimmed, and its ledgers were deleted, data and metalog. The trims were in that metalog, the "
        "answers to writers followed from it, and the only index that knew was on one engine's disk.",
        instead="A metalog is deleted only when an index snapshot in the bookies, named in the metadata, covers its term to the end.",
        mutation=Mutation(
            "a term is reclaimed that no snapshot covers",
            "logbook",
            (
                (
                    "            if term not in settled and not state.live(term) and node.covers(term, state.places.terms[term].log)\n",
                    "            if term not in settled and not state.live(term)\n",
                ),
            ),
            "logbook/tests/engine/upkeep/test_reclaim.py::test_only_dead_terms_that_a_snapshot_covers_are_due",
        ),
        found=Scenario(),
    ),
)
