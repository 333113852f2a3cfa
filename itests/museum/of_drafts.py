"""Executions that broke earlier drafts of our own design, found by models before there was code."""

from __future__ import annotations

from functools import partial
from typing import Final

from itests.museum.exhibit import Exhibit, Hunt, Scenario
from itests.museum.taken import taken
from itests.mutations.patch import patch

_draft: Final = partial(Exhibit, system="Our own drafts", link="../ARCHITECTURE.md")

EXHIBITS: Final[tuple[Exhibit, ...]] = (
    _draft(
        issue="nothing says as of when the next term was decided",
        lost="order: two ledgers were the metalog of one term, and both acknowledged",
        story="A driver read who serves, sealed that term and was slow. Another driver did the same and installed the next term. "
        "The first one wrote what it had prepared over it: the same term number, another ledger, another sequencer.",
        instead="There is one small value, the view. It is swapped at the version that was read before the seal; who loses the "
        "race begins again.",
        mutation=patch(r"""
            the view is swapped at its newest version
            metalog
            -await _swap(metadata, wanted, found.version, list(sealed.values()))
            +await _swap(metadata, wanted, (await ensure_view(metadata)).version, list(sealed.values()))
        """),
        found=Hunt("cluster", "metadata", ("4 view", "4 sealed", "3 sealed")),
    ),
    _draft(
        issue="a metalog entry is applied before its quorum has it",
        lost="acknowledged appends, and engines had different indexes",
        story="A cut was on one bookie. An engine saw it, applied it and answered the appends that it orders. The bookie became "
        "unreachable, recovery had two denials and closed the metalog before that cut.",
        instead="Only entries that recovery cannot drop are applied: those of a closed ledger, and those that the sequencer says "
        "its ack quorum has.",
        mutation=patch(r"""
            cuts are pushed before their quorum has them
            metalog
            +        self._push(expected, data)
                     assert submitted == expected, f"metalog entry
            @@
            -        self._push(first, data)
                     rolling = self
        """),
        found=Hunt("cluster", "failovers", ("crash", "history", "lost", "7 index", "7 verdicts", "liveness")),
    ),
    _draft(
        issue="the sequencer is asked where the log ends",
        lost="an append that was answered: a linearizable read did not see it",
        story="A sequencer was cut off, another driver closed its metalog, and the next term acknowledged an append. The old one "
        "did not know. A reader asked it where the log ends, and was told what it remembered.",
        instead="The word of a sequencer proves nothing, that of its bookies does: they take nothing for a metalog that was closed, "
        "neither a new entry nor one that they hold. A reader waits until an ack quorum has taken either, sent after it asked.",
        mutation=patch(r"""
            a barrier is answered from memory
            metalog metalog/tests/sequencer/test_term_server.py::test_a_fenced_sequencer_answers_no_order_and_no_barrier
            -        if len(self._waiters.proving) < limits.BARRIERS_WAITING and self._writer.ask_unfenced(
            -            partial(self._proven, waiter, self.recent.end)
            -        ):
            -            self._waiters.prove(waiter)
            -        else:
            -            self._prove_by_entry(waiter)
            +        self._waiters.prove(waiter)
            +        self._proven(waiter, self.recent.end, True)
        """),
        found=Hunt("cluster", "unaware", ("history", "stale", "wrong trim", "non-monotonic")),
    ),
    _draft(
        issue="reading again settles a lost answer",
        lost="a change of an ensemble: it landed after it was given up",
        story="The answer to a swap was lost. The writer read again, saw the old version, and took the swap for failed. It was "
        "still under way, and landed after that.",
        instead="Only a later version settles it: the same swap is repeated at the same version until the version moves.",
        mutation=taken("a read settles a lost answer"),
    ),
    _draft(
        issue="a loser does not consume its number",
        lost="the answer *no*: an append that was refused was in the log later",
        story="A conditional append lost, and its caller was told. Its number stayed free. A delayed copy of the same request came "
        "when the condition held by chance, and won. Told no, joined yes.",
        instead="A number is decided once and for ever, whatever the verdict is.",
        mutation=patch(r"""
            a loser does not consume its number
            logbook logbook/tests/engine/writers/test_verdict.py::test_a_losing_number_is_decided_for_ever
            -            state.decided(number, 1, 0, CONFLICT, actual)
                         decision.answers.append(Answer(at, number, 1, 0, CONFLICT, actual))
            -            decision.lose(start + record, start + record + 1)
            +            decision.lose(start + record, start + run.count)
            +            return
        """),
    ),
    _draft(
        issue="every higher number is new",
        lost="records: the first of two pipelined appends was taken for a duplicate",
        story="Numbers 1 and 2 were under way. 1 was dropped with its shard, 2 survived. When 1 came again, it was below the last "
        "number and was answered as a duplicate; it was nowhere.",
        instead="Numbers are dense: one that leaves out another is refused, not decided, and the client sends from the lowest.",
        mutation=patch(r"""
            numbers may leave out others
            logbook logbook/tests/engine/writers/test_verdict.py::test_a_gap_decides_nothing_and_answers_the_last_number
            -            decision.answers.append(Answer(at, first, run.count, state.last, GAP, _NOBODY))
            -            decision.lose(start, start + run.count)
            -            return
            +            state.last, fresh = first - 1, first
        """),
    ),
    _draft(
        issue="an answer as soon as the cut is there",
        lost="where a record is: the caller got the number of the copy that lost",
        story="Whoever had sent a record was answered when a cut covered it. But the record had been sent twice, through two shards, "
        "and the copy under that cut was the second one: it joined nothing.",
        instead="An answer leaves when the index has passed the cut, with the verdict: a copy gets the seqnum of the first.",
        mutation=patch(r"""
            a copy is answered with its own place
            logbook
            -            decision.answers.extend(state.recall(at, first, known))
            +            decision.answers.append(Answer(at, first, known - first, start_seqnum, COMMITTED, _NOBODY))
        """),
        found=Hunt("cluster", "failovers", ("history", "lost")),
    ),
    _draft(
        issue="limbo after every start that was not clean",
        lost="nothing, but after one power cut no ledger could be recovered any more",
        story="A bookie that had not been stopped cleanly did not trust its memory: it fenced what it held, and answered *unknown* "
        "for what it did not hold. After a power cut all bookies did so. Recovery needs denials, and got none from anybody.",
        instead="With an intact journal a bookie knows all that it acknowledged. Limbo is for bookies whose journal, index or disk "
        "is missing or damaged.",
        mutation=patch(r"""
            limbo after every start
            bookie
                     limbo = await Limbo.load(disk, bookie.raw)
            +        doubted = {} if limbo else (await survey(metadata, bookie.bookie_id, owns=owns)).listed
            +        if doubted:
            +            limbo = await Limbo.begin(disk, bookie.raw, doubted)
                     return await open_storage(limbo=limbo)
        """),
        found=Hunt("ledgers", "races", ("liveness",)),
    ),
    _draft(
        issue="seal without coverage",
        lost="acknowledged entries at the end of a ledger, those of metalogs included",
        story="A ledger counted as sealed when one bookie of each write set had answered the fence, and ended where that one knew "
        "of nothing more. The writer went on with the two others, had its quorum and acknowledged what the seal left out.",
        instead="A ledger is sealed when so many bookies answered the fence that no ack quorum is left without one of them; an entry "
        "is absent only when so many deny it.",
        mutation=patch(r"""
            one answer of a write set seals it
            ledger
            -        if sum(not answers[slot].definite for slot in window) >= ack_quorum:
            +        if all(not answers[slot].definite for slot in window):
            @@
            -return Verdict.ABSENT if negatives >= needed
            +return Verdict.ABSENT if negatives >= 1
        """),
        found=Hunt("cluster", "harsh", ("1 acked", "1 copies", "2 closed")),
    ),
    _draft(
        issue="cut beyond the final vector",
        lost="appends that were answered; engines disagreed about where the term ends",
        story="The metalog was fenced and closed while the sequencer had a cut under way. It took the cut for written, as it had "
        "taken all before, and pushed it. Engines applied it and answered; the record of the term ends before it.",
        instead="What a fenced sequencer has under way is nothing until the metalog has it. Who applied more than the term's record "
        "says stops.",
        mutation=patch(r"""
            the last cut of a fenced sequencer is pushed
            metalog metalog/tests/sequencer/test_sequencer.py::test_a_fenced_sequencer_acknowledges_nothing
                 def _writer_failed(self, error: BokiError) -> None:
            +        if self._in_flight is not None and self.over is None:
            +            self._acked(self.recent.end)
                     self.end(error)
        """),
        found=Hunt(
            "cluster", "metadata", ("history", "lost", "crash", "7 index", "7 verdicts", "5 verdict", "liveness")
        ),
    ),
    _draft(
        issue="index row before the cut",
        lost="monotonic reads: a record was read, and through another engine was not there a moment later",
        story="A cut covered entries of two shards, and one of them was not here yet. The rows of the other one were in the index, and "
        "a read showed them. Its reply claimed the position before the cut, for that was all that had been passed; so the next "
        "engine did not wait. (Ours did this, and the walk through this museum found it.)",
        instead="A read shows what lies below the last cut that is applied whole, and that is what its reply claims.",
        mutation=patch(r"""
            rows of half a cut are shown
            logbook logbook/tests/engine/read/test_reader.py::test_a_cut_is_shown_whole_or_not_at_all
            -            stop = min(query.stop, covered + 1)
            +            stop = query.stop
                         found, more
            @@
            -                stop = min(query.stop, covered + 1)
            +                stop = query.stop
                             found
            @@
            -stop if stop <= covered else covered + 1)
            +stop)
            @@
            -start if start <= covered else covered, stop)
            +start, stop)
            @@
            -min(query.start, covered), query.stop, most)
            +query.start, query.stop, most)
        """),
        found=Hunt("cluster", "harsh", ("history", "non-monotonic", "stale")),
    ),
    _draft(
        issue="placement is read before and written later",
        lost="order: two terms served one book",
        story="Each log had a chain of terms of its own, and a swap of it looked at that log alone. A driver read who has which slot, "
        "slots of other logs moved, and its swap brought the old placement back.",
        instead="Slots and terms of all logs are one value, swapped at the version that was read before anything was sealed.",
        mutation=patch(r"""
            a swap looks at its own log alone
            metalog metalog/tests/terms/test_term_change_moves.py::test_a_fail_over_of_a_third_log_never_brings_slots_back
            -        wanted = term_plan.next_view(found.view, plan, candidates, sealed, token)
            +        now = await ensure_view(metadata)
            +        if any(now.view.installed(log) != found.view.installed(log) for log in plan.sealed):
            +            continue
            +        merged = View(1, now.view.next_term, found.view.slots, now.view.logs)
            +        wanted = term_plan.next_view(merged, plan, candidates, sealed, token)
            @@
            -await _swap(metadata, wanted, found.version, list(sealed.values()))
            +await _swap(metadata, wanted, now.version, list(sealed.values()))
        """),
        found=Scenario("the slots of running term"),
    ),
    _draft(
        issue="a number that is drawn apart arrives late",
        lost="order: a new record had a lower seqnum than an old one",
        story="A mover drew the numbers of its terms and was slow. A log failed over with the next number and acknowledged records. "
        "Then the mover came, with the numbers that it had drawn.",
        instead="The numbers of new terms are in the value that installs them. Nobody has one before.",
        mutation=patch(r"""
            the number of a term is drawn before the swap
            metalog metalog/tests/terms/test_term_change_moves.py::test_drivers_that_race_at_every_pair_of_steps
                 token = rng.token(TOKEN_BYTES).hex()
            +    drawn = 0
            @@
                     found, known = known or await ensure_view(metadata), None
            +        drawn = drawn or found.view.next_term
                     plan = decide(found.view)
            @@
            -        wanted = term_plan.next_view(found.view, plan, candidates, sealed, token)
            +        early = View(1, drawn, found.view.slots, found.view.logs)
            +        wanted = term_plan.next_view(early, plan, candidates, sealed, token)
            +        next_term = max(found.view.next_term, wanted.next_term)
            +        wanted = View(1, next_term, wanted.slots, wanted.logs)
        """),
        found=Scenario("was drawn before and arrives late"),
    ),
    _draft(
        issue="the target of a move keeps its running term",
        lost="order: the book went from a higher term back to a lower one",
        story="Only the log that gave the slot away was sealed. The log that got it went on in the term it had, whose number was "
        "lower: what was appended after the move sorted before what was there.",
        instead="Source and target get new terms in the same swap. The slots of a term never change.",
        mutation=patch(r"""
            only the source of a move gets a new term
            metalog metalog/tests/terms/test_term_change_moves.py::test_slots_move_with_one_swap
            -    logs = slot_rules.concerned(view.per_slot, after)
            +    concerned = slot_rules.concerned(view.per_slot, after)
            +    logs = tuple(log for log in concerned if after.count(log) < view.per_slot.count(log))
                 return Plan(logs, after) if logs else None
            @@
            -        for log in slot_rules.concerned(self.per_slot, after):
            -            assert log in terms or log in without, f"the slots of log {log} change, so its term must"
        """),
        found=Scenario("the slots of running term"),
    ),
    _draft(
        issue="trim of the future",
        lost="records that were appended after the trim",
        story="Somebody trimmed below a number of another book, or below the largest there is, to mean *all*. The mark was kept as it "
        "came, and whatever was appended afterwards lay below it.",
        instead="A trim acts on what is ordered before it: a mark is at most one above the newest record of its stream.",
        mutation=patch(r"""
            a mark is kept as it came
            logbook logbook/tests/engine/state/test_state.py::test_a_trim_of_the_future_kills_nothing_that_comes_later
            -            mark = min(before, self.newest(book, tag) + 1)
            +            mark = before
        """),
    ),
    _draft(
        issue="a metalog goes with the trims that were in it",
        lost="trims, verdicts and numbers of writers, for the engine that started next",
        story="All records of a term were trimmed, and its ledgers were deleted, data and metalog. The trims were in that metalog, the "
        "answers to writers followed from it, and the only index that knew was on one engine's disk.",
        instead="A metalog is deleted only when an index snapshot in the bookies, named in the metadata, covers its term to the end.",
        mutation=patch(r"""
            a term is reclaimed that no snapshot covers
            logbook logbook/tests/engine/upkeep/test_reclaim.py::test_only_dead_terms_that_a_snapshot_covers_are_due
            -            if term not in done and not state.live(term) and node.covers(term, state.places.terms[term].log)
            +            if term not in done and not state.live(term)
        """),
    ),
)
