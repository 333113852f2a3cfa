"""What would be lost if entries that ride in the metalog (docs/adr/0021) were handled like others: drafts of that part."""

from __future__ import annotations

from functools import partial
from typing import Final

from itests.museum.exhibit import Exhibit, Hunt
from itests.mutations.patch import patch

_draft: Final = partial(Exhibit, system="Our own drafts", link="adr/0021-small-appends-ride-in-the-metalog.md")

EXHIBITS: Final[tuple[Exhibit, ...]] = (
    _draft(
        issue="a data ledger ends where its bookies say",
        lost="appends that were answered: their entry was in the metalog alone",
        story="An engine had a small entry carried by the metalog, answered its caller, and died before it wrote the entry to its "
        "data ledger. Another engine recovered that ledger: no bookie had the entry, so it was closed before it.",
        instead="Recovery closes nothing below what the metalog orders. What it does not find, it takes from the metalog entry that "
        "carries it, and writes it.",
        mutation=patch(r"""
            a ledger is closed without what its metalog carries
            logbook
            -recover=True, floor=floor)  # fences nothing that is closed
            +recover=True)  # fences nothing that is closed
        """),
        found=Hunt("cluster", "harsh", ("1 cut",)),
    ),
    _draft(
        issue="an engine closes its ledger at what is acknowledged",
        lost="appends that were answered: their entry was on its way to the bookies",
        story="A shard ended right after its last entry was carried and ordered. The engine gave the entry to its data ledger and "
        "closed it at once, at the last entry that an ack quorum had: the one before.",
        instead="An engine closes its own ledger when all that is ordered of it is acknowledged; if that takes too long, others "
        "recover it.",
        mutation=patch(r"""
            a writer closes before what was carried is acknowledged
            logbook
            -                await writer.acknowledged(floor - 1)
            +                await asyncio.sleep(0)
        """),
        found=Hunt("cluster", "harsh", ("1 cut",)),
    ),
    _draft(
        issue="a metalog entry carries an entry that it does not end with",
        lost="an append: others read its place as another record's, twice",
        story="An entry waited at the sequencer to be carried. Its engine wrote it, and the next one, which were acknowledged and "
        "reported. The cut named both and carried the first: everybody took its bytes for the second.",
        instead="What is carried is the last entry that the cut names of its shard. A report that goes further says that it is "
        "durable, and it is carried no more.",
        mutation=patch(r"""
            an overtaken entry is carried
            metalog metalog/tests/entries/test_progress.py::test_an_entry_that_was_overtaken_by_a_report_of_the_next_is_not_carried
            -        if self._carried:
            -            self._carried.pop(shard, None)
        """),
    ),
    _draft(
        issue="what is carried counts as soon as it is sent",
        lost="an append that was answered, if the metalog is closed without it",
        story="The sequencer passed an entry on with the cut that carried it, when it had sent the metalog entry. The engine answered. "
        "No data ledger had the entry, and the metalog entry was on no quorum: recovery closed the metalog before it.",
        instead="A carried entry is as durable as its metalog entry, so it is passed on, and applied, when that is acknowledged.",
        mutation=patch(r"""
            what is carried is pushed before its entry is acknowledged
            metalog metalog/tests/sequencer/test_term_server_carried.py::test_what_is_carried_is_pushed_once_its_entry_is_acknowledged
            +        self._push(expected, data)
                     assert submitted == expected, f"metalog entry
            @@
            -        self._push(first, data)
                     rolling = self
        """),
    ),
)
