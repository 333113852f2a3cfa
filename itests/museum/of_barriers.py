"""What would pass for a proof that a metalog is not fenced (docs/adr/0022), and is none: drafts of that part."""

from __future__ import annotations

from typing import Final

from itests.museum.exhibit import Exhibit, Hunt, Scenario
from itests.mutations.mutation import Mutation

_SYSTEM: Final = "Our own drafts"
_LINK: Final = "adr/0022-a-repeat-proves-that-nobody-fenced.md"
_LOST: Final = "an append that was answered: a linearizable read did not see it"
_TESTS: Final = "metalog/tests/test_barriers_on_bookies.py"

UNAWARE: Final = Hunt("cluster", "unaware", ("history", "stale", "wrong trim", "non-monotonic"))
"""How clusters find that a sequencer answers from the past."""

EXHIBITS: Final[tuple[Exhibit, ...]] = (
    Exhibit(
        system=_SYSTEM,
        issue="any acknowledgement that comes after the question counts",
        link=_LINK,
        lost=_LOST,
        story="Two bookies had acknowledged the last entry, the word of the third was under way. Somebody recovered the metalog, and the "
        "next term acknowledged an append. A reader asked the old sequencer, whose bookies were asked in turn. Then the third "
        "acknowledgement came: all three had answered as often as they had been sent something before the question.",
        instead="An answer counts that cannot be to anything sent before the question: a bookie has to have acknowledged more than "
        "it had been sent then.",
        mutation=Mutation(
            "a late acknowledgement is a proof",
            "ledger",
            (("self.replica.answered > self.sent", "self.replica.answered >= self.sent"),),
            f"{_TESTS}::test_a_late_acknowledgement_of_an_old_entry_proves_nothing",
        ),
        found=Scenario("assert not True"),
    ),
    Exhibit(
        system=_SYSTEM,
        issue="one bookie is asked whether the ledger is fenced",
        link=_LINK,
        lost=_LOST,
        story="Who recovers a ledger of three bookies fences two of them, and needs no more. The third had not heard of it, and took "
        "the repeated entry.",
        instead="As many are needed as acknowledge an entry: of those, one has been fenced.",
        mutation=Mutation(
            "one bookie is a proof",
            "ledger",
            (("        self._quorum = ack_quorum\n", "        self._quorum = min(1, ack_quorum)\n"),),
            f"{_TESTS}::test_the_word_of_one_bookie_proves_nothing",
        ),
        found=UNAWARE,
    ),
    Exhibit(
        system=_SYSTEM,
        issue="the ensemble is asked that is about to be another",
        link=_LINK,
        lost=_LOST,
        story="A bookie failed and came back while another one was put into its place: the change was in the metadata, its answer was "
        "not here. Somebody recovered the ledger by the new ensemble, and fenced the new bookie and one that stayed. Of the old "
        "ensemble two were left that had heard nothing, which was an ack quorum.",
        instead="While a change of the ensemble is under way nobody is asked, as nothing completes then: an entry is made, and waits.",
        mutation=Mutation(
            "an old ensemble is a proof",
            "ledger",
            (("        if frame is None or acks.frozen:\n", "        if frame is None:\n"),),
            f"{_TESTS}::test_bookies_of_the_old_ensemble_prove_nothing_while_it_changes",
        ),
        found=Scenario("assert not True"),
    ),
    Exhibit(
        system=_SYSTEM,
        issue="what a bookie holds it may acknowledge again",
        link=_LINK,
        lost=_LOST,
        story="A bookie looked first whether it held the entry, and acknowledged it, for nothing is lost by that. So all bookies of a "
        "fenced metalog took the repeat.",
        instead="A bookie looks at the fence first: no add is acknowledged after it, not even of what is there.",
        mutation=Mutation(
            "repeats pass the fence",
            "bookie",
            (
                (
                    "            return V2Status.FENCED\n        verdict = decide_add(\n            None if ledger is None",
                    (
                        "            return V2Status.FENCED\n"
                        "        if ledger is not None and ledger.holds(request.entry_id):\n"
                        "            return self._repeats.judge(ledger, request, answers)\n"
                        "        verdict = decide_add(\n            None if ledger is None"
                    ),
                ),
            ),
            f"{_TESTS}::test_bookies_vouch_for_a_metalog_until_it_is_fenced",
        ),
        found=UNAWARE,
    ),
)
