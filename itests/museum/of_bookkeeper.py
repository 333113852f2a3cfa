"""Bugs of Apache BookKeeper: its protocol (client side) and its bookie."""

from __future__ import annotations

from functools import partial
from typing import Final

from itests.museum.exhibit import Exhibit, Hunt
from itests.museum.taken import taken
from itests.mutations.patch import patch

_bug: Final = partial(Exhibit, system="Apache BookKeeper")
_ISSUES: Final = "https://github.com/apache/bookkeeper/issues"
_PULLS: Final = "https://github.com/apache/bookkeeper/pull"
_LOSS: Final = ("1 acked", "1 copies", "2 closed")

_PROTOCOL: Final = (
    _bug(
        issue="#2614, found with TLA+",
        link=f"{_ISSUES}/2614",
        lost="an acknowledged entry, and all after it",
        story="Recovery fenced with its reads of the last entry, until an ack quorum could not be had without a fenced bookie. The "
        "reads of entries that followed did not fence. A third bookie, which never got the fence, denied an entry; then the "
        "writer's add arrived there and was taken. Together with a copy on a bookie whose answer had been late, that was an ack "
        "quorum: acknowledged, behind the end of a closed ledger.",
        instead="Every read of a recovery fences, so a denial stays true.",
        mutation=taken("fencing flag off the recovery reads"),
        found=Hunt("ledgers", "fencing", _LOSS),
    ),
    _bug(
        issue="#2615, found with TLA+",
        link=f"{_ISSUES}/2615",
        lost="the ledger: its metadata was not valid any more",
        story="The bookies of a new fragment know no last acknowledged entry. Recovery asked only them, began at entry 0, and wrote "
        "old entries into the new fragment.",
        instead="That a fragment exists proves what lies before it: recovery begins at its first entry at least.",
        mutation=taken("recovery starts at the LACs alone"),
    ),
    _bug(
        issue="#1067",
        link=f"{_ISSUES}/1067",
        lost="nothing, but the ledger could not be opened",
        story="One bookie hung and answered nothing. Recovery waited for it before it called an entry absent, for ever, although "
        "the others had said enough.",
        instead="(Qw - Qa) + 1 denials decide: no ack quorum is left without one of them.",
        mutation=taken("absent only when the whole write set denies"),
    ),
    _bug(
        issue="#1591, #1592",
        link=f"{_ISSUES}/1591",
        lost="acknowledged entries that were on bookies which no metadata names",
        story="A bookie failed while ZooKeeper stalled. The writer replaced it in memory and went on to acknowledge entries on the "
        "new ensemble. It died before the metadata was written.",
        instead="Nothing completes past a change that is not committed.",
        mutation=taken("acks complete during an ensemble change"),
        found=Hunt("ledgers", "races", _LOSS),
    ),
    _bug(
        issue="#1886",
        link=f"{_ISSUES}/1886",
        lost="copies: one slot of the ensemble was used twice",
        story="Two bookies failed while another process wrote the metadata too. The second change was made of what the writer "
        "remembered, not of what was there, and gave a place away that was taken.",
        instead="Metadata is immutable, and what is wanted is decided anew on what is there after every lost race.",
        mutation=taken("a lost race is not decided anew"),
    ),
    _bug(
        issue="#281, #1621",
        link=f"{_ISSUES}/281",
        lost="acknowledged entries: the next recovery ended the ledger before them",
        story="A recovery replaced a bookie and wrote that to the metadata at once, before the new bookie had anything. It died. The "
        "next recovery asked the new bookie, which denied.",
        instead="What a recovery replaces reaches the metadata with the close, in one swap.",
        mutation=taken("replacements of a recovery are written as they happen"),
        found=Hunt("ledgers", "races", ("2 closed", "1 acked", "1 copies", "liveness")),
    ),
    _bug(
        issue="#4097, #4194",
        link=f"{_ISSUES}/4097",
        lost="an acknowledged entry: no bookie that the metadata names had it",
        story="Two bookies of an ensemble were replaced at once. Slot by slot, the writer cleared old acks, sent again, and looked "
        "what was complete. After the first slot an entry was complete by the ack of the second one, which was leaving too.",
        instead="All acks of all replaced slots are void first, then everything is sent again, then entries may complete.",
        mutation=taken("slots are replaced and completed one by one"),
    ),
    _bug(
        issue="#4651",
        link=f"{_ISSUES}/4651",
        lost="acknowledged entries: metadata said that they were on a bookie that never got them",
        story="A change computed that the new fragment begins at entry 10. Before its swap, other threads acknowledged 10 and 11, on "
        "the old bookies. The metadata then named the new bookies for them.",
        instead="Completion stops before the first entry of the new fragment is computed.",
        mutation=taken("the freeze comes after the swap"),
    ),
    _bug(
        issue="#4459",
        link=f"{_ISSUES}/4459",
        lost="nothing, but the writer hung for ever",
        story="A bookie was replaced and, after another change, was back in its old slot. The list was what it had been, so there was "
        "no difference, so nothing was sent again; what was pending waited for acks that nobody owed.",
        instead="What is sent again is keyed by slot and generation, not by the difference of two lists.",
        mutation=taken("a change to what the ledger once had sends nothing again"),
    ),
    _bug(
        issue="#2908, the reader's half",
        link=f"{_ISSUES}/2908",
        lost="acknowledged entries: a damaged disk ended a ledger early",
        story="A bookie could not read its entry log. Recovery took whatever was no entry for *there is none*, and truncated.",
        instead="Answers have three values. Only *no such ledger* and *no such entry* deny; everything else is unknown.",
        mutation=taken("an error of the disk counts as a negative"),
    ),
)

_BOOKIE: Final = (
    _bug(
        issue="#2908, the bookie's half",
        link=f"{_ISSUES}/2908",
        lost="acknowledged entries: a damaged disk ended a ledger early",
        story="The entry log was damaged, and the bookie answered *no such entry* for what lay there: nobody could tell that from "
        "never having had it.",
        instead="An entry that is there and cannot be read is an error of the disk.",
        mutation=taken("an entry that cannot be read is not there"),
    ),
    _bug(
        issue="#2612",
        link=f"{_ISSUES}/2612",
        lost="acknowledged entries: a bookie denied what it had acknowledged",
        story="A bookie lost its disk and was started on an empty one under its old name. It answered *no such entry* with a good "
        "conscience, and recovery believed it.",
        instead="An id is a disk's, made when it is formatted. An empty directory where a bookie was is refused; what replaces it is "
        "another bookie.",
        mutation=taken("a wiped directory is formatted without asking"),
    ),
    _bug(
        issue="#2612, by the address of the lost bookie",
        link=f"{_ISSUES}/2612",
        lost="acknowledged entries: denied by a bookie that nobody had asked",
        story="A new id for an empty disk is not enough. For as long as the lost bookie is still registered, its address leads to "
        "the one that was made in its place, and what that one denies is taken for the word of the lost one. Boki had this bug; "
        "simulated clusters of this museum found it.",
        instead="Before it closes a ledger, recovery looks whether every bookie that denied something still has its cookie. That of "
        "a lost one is deleted before the new one serves.",
        mutation=patch(r"""
            a denial counts whoever gave it
            ledger ledger/tests/recover/test_fence_proof.py::test_a_bookie_that_lost_its_disk_amid_a_recovery_is_noticed_before_the_close
            -            self._sure[bookie] = None
                         return True
        """),
    ),
    _bug(
        issue="#4812",
        link=f"{_ISSUES}/4812",
        lost="entries that were acknowledged after the ledger had been closed",
        story="A ledger was fenced and closed. Both of its bookies were taken out of service and made anew at the same addresses. "
        "The old writer, which had slept through all that, sent its next entry. Bookies that had never seen a fence took it.",
        instead="The first normal add of a ledger is acknowledged only when the metadata names this very bookie, and OPEN.",
        mutation=taken("first validation off"),
    ),
    _bug(
        issue="#4701",
        link=f"{_ISSUES}/4701",
        lost="an entry that was acknowledged after the fence",
        story="Adds and fences of one ledger locked two different objects. An add looked, saw no fence, and was acknowledged after "
        "the fence had been answered with an older last entry.",
        instead="One object and one event loop: an add looks at the fence in the turn in which it is stored.",
        mutation=taken("adds do not look at the fence"),
        found=Hunt("ledgers", "races", _LOSS),
    ),
    _bug(
        issue="#4462",
        link=f"{_ISSUES}/4462",
        lost="that a ledger was deleted and fenced: it was there again",
        story="A ledger was fenced and deleted. An add of its old writer arrived late, and made it again, unfenced.",
        instead="No metadata is no first validation: the add is refused.",
        mutation=taken("a ledger without metadata is as good as an open one"),
    ),
    _bug(
        issue="PR #4843",
        link=f"{_PULLS}/4843",
        lost="fences: a fenced ledger took adds again after a restart",
        story="A checkpoint found no new entries and left out the index, where fences are. The journal's mark moved on all the same, "
        "past the record of the fence. After a crash nobody remembered it.",
        instead="Every ledger of which anything changed is in the checkpoint, with or without entries.",
        mutation=taken("a checkpoint leaves out ledgers without new entries"),
    ),
    _bug(
        issue="PR #4844, #3329",
        link=f"{_PULLS}/4844",
        lost="acknowledged entries of one directory, after a crash",
        story="A bookie with several directories moved the journal's mark when one of them was stored. What the others had not "
        "stored lay before the mark, and was not replayed.",
        instead="The mark is where the checkpoint began, never where the journal is when it ends.",
        mutation=taken("the mark is where the journal is when a checkpoint ends"),
        found=Hunt("ledgers", "races", ("2 fence", *_LOSS)),
    ),
    _bug(
        issue="not reported: a denial overtakes its fence",
        link="https://github.com/apache/bookkeeper",
        lost="a fence that recovery had counted",
        story="A fencing read of an entry that the bookie does not have was answered at once, before the fence was on disk. The "
        "bookie lost power in between: it had been counted as fenced, and took the writer's adds.",
        instead="Whatever the answer is, it leaves after the fence is durable.",
        mutation=taken("a fencing read is answered at once"),
    ),
    _bug(
        issue="#4659",
        link=f"{_ISSUES}/4659",
        lost="content: a torn entry was replayed as if it were whole",
        story="Records of the journal had no checksum. After a power cut the last one had some of its sectors, and was readable "
        "*but junk*, as a test of the project says.",
        instead="Each record has a checksum; replay ends before the first torn group.",
        mutation=taken("records of the journal are not checked"),
    ),
    _bug(
        issue="#870",
        link=f"{_ISSUES}/870",
        lost="whole live ledgers, more than once",
        story="Garbage collection deleted every ledger that a listing of the metadata did not have. Listings had bugs, and stopped "
        "early, or left out ranges.",
        instead="Two reads of the ledger's own node, some time apart, and nothing in between; a listing only says where to look.",
        mutation=taken("the first proof deletes"),
    ),
    _bug(
        issue="#4668",
        link=f"{_ISSUES}/4668",
        lost="a copy that repair had just made",
        story="Collection saw a copy that the metadata did not name and went to delete it. Repair was about to use that very copy, "
        "and wrote the metadata in between.",
        instead="Between the two proofs nothing may have come for the ledger, nor its metadata have changed.",
        mutation=taken("collection does not look for what came meanwhile"),
    ),
    _bug(
        issue="BP-46, a bookie that lost its journal",
        link="https://github.com/apache/bookkeeper",
        lost="acknowledged entries: they were denied by who had lost them",
        story="A bookie without its journal comes back with less than it acknowledged. What it denies was perhaps there.",
        instead="It is in limbo: what it does not hold is *unknown* until everything that it owes is proven to be there.",
        mutation=taken("limbo denies"),
    ),
)

EXHIBITS: Final[tuple[Exhibit, ...]] = (*_PROTOCOL, *_BOOKIE)
