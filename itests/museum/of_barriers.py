"""What would pass for a proof that a metalog is not fenced (docs/adr/0022), and is none: drafts of that part."""

from __future__ import annotations

from functools import partial
from typing import Final

from itests.museum.exhibit import Exhibit, Hunt, Scenario
from itests.mutations.patch import patch

_draft: Final = partial(
    Exhibit,
    system="Our own drafts",
    link="adr/0022-a-repeat-proves-that-nobody-fenced.md",
    lost="an append that was answered: a linearizable read did not see it",
)

UNAWARE: Final = Hunt("cluster", "unaware", ("history", "stale", "wrong trim", "non-monotonic"))
"""How clusters find that a sequencer answers from the past."""

EXHIBITS: Final[tuple[Exhibit, ...]] = (
    _draft(
        issue="any acknowledgement that comes after the question counts",
        story="Two bookies had acknowledged the last entry, the word of the third was under way. Somebody recovered the metalog, and the "
        "next term acknowledged an append. A reader asked the old sequencer, whose bookies were asked in turn. Then the third "
        "acknowledgement came: all three had answered as often as they had been sent something before the question.",
        instead="An answer counts that cannot be to anything sent before the question: a bookie has to have acknowledged more than "
        "it had been sent then.",
        mutation=patch(r"""
            a late acknowledgement is a proof
            ledger metalog/tests/test_barriers_on_bookies.py::test_a_late_acknowledgement_of_an_old_entry_proves_nothing
            -self.replica.answered > self.sent
            +self.replica.answered >= self.sent
        """),
        found=Scenario("assert not True"),
    ),
    _draft(
        issue="one bookie is asked whether the ledger is fenced",
        story="Who recovers a ledger of three bookies fences two of them, and needs no more. The third had not heard of it, and took "
        "the repeated entry.",
        instead="As many are needed as acknowledge an entry: of those, one has been fenced.",
        mutation=patch(r"""
            one bookie is a proof
            ledger metalog/tests/test_barriers_on_bookies.py::test_the_word_of_one_bookie_proves_nothing
            -        self._quorum = ack_quorum
            +        self._quorum = min(1, ack_quorum)
        """),
        found=UNAWARE,
    ),
    _draft(
        issue="the ensemble is asked that is about to be another",
        story="A bookie failed and came back while another one was put into its place: the change was in the metadata, its answer was "
        "not here. Somebody recovered the ledger by the new ensemble, and fenced the new bookie and one that stayed. Of the old "
        "ensemble two were left that had heard nothing, which was an ack quorum.",
        instead="While a change of the ensemble is under way nobody is asked, as nothing completes then: an entry is made, and waits.",
        mutation=patch(r"""
            an old ensemble is a proof
            ledger metalog/tests/test_barriers_on_bookies.py::test_bookies_of_the_old_ensemble_prove_nothing_while_it_changes
            -        if frame is None or acks.frozen:
            +        if frame is None:
        """),
        found=Scenario("assert not True"),
    ),
    _draft(
        issue="what a bookie holds it may acknowledge again",
        story="A bookie looked first whether it held the entry, and acknowledged it, for nothing is lost by that. So all bookies of a "
        "fenced metalog took the repeat.",
        instead="A bookie looks at the fence first: no add is acknowledged after it, not even of what is there.",
        mutation=patch(r"""
            repeats pass the fence
            bookie metalog/tests/test_barriers_on_bookies.py::test_bookies_vouch_for_a_metalog_until_it_is_fenced
                         return V2Status.READ_ONLY
            +        if ledger is not None and ledger.holds(request.entry_id):
            +            return self._repeats.judge(ledger, request, answers)
                     verdict = decide_add(
                         None if ledger is None
        """),
        found=UNAWARE,
    ),
)
