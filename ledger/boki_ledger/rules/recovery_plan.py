"""The decisions of a recovery: where it starts, what the answers prove, where the ledger ends. Pure.

Input is one answer per (entry, slot) from fencing reads, in any order and any number of times; output is the run of entries
proven present, to be written back in order, and the end once it is proven.

Rules:
- Start: entries up to max(LACs seen, first entry of the last fragment - 1) were acknowledged. A new fragment's bookies may
  know no LAC at all; its existence proves that everything before it was acknowledged.
- An entry is present with one valid copy, absent with (Qw - Qa) + 1 explicit negatives, else undecided. Below the floor
  (entries that somebody knows to have been acknowledged) only the negatives of the whole write set count, and they are
  evidence of loss: nothing may be closed.
- The ledger ends before the first absent entry whose predecessors are all present. Copies beyond are left as they are:
  they were never acknowledged, and no reader reaches them.
- An entry that is *carried* (its payload is known from elsewhere) is present.
- What was once HAVE stays so: a bookie that had a valid copy does not become a negative later.
"""

from __future__ import annotations

from collections.abc import Container, Iterable

from boki_ledger.rules.answers import Answer, Verdict, entry_verdict
from boki_ledger.rules.write_set import write_sets


def recovery_start(lacs: Iterable[int], *, last_fragment_first: int) -> int:
    """The last entry taken as acknowledged without reading it; -1 for none."""
    return max(last_fragment_first - 1, *lacs, -1)


class RecoveryPlan:
    """Answers by entry and slot, from `start + 1` on. `end` is None until the end is proven.

    Invariant: every entry in start + 1 … present_to is PRESENT; `end`, once set, equals `present_to` for ever.
    """

    def __init__(
        self,
        *,
        start: int,
        ensemble_size: int,
        write_quorum: int,
        ack_quorum: int,
        floor: int = 0,
        carried: Container[int] = (),
    ) -> None:
        """`floor` is the number of entries known to have been acknowledged."""
        self.start = start
        self.present_to = start
        self.end: int | None = None
        self.floor = floor
        self._write_quorum = write_quorum
        self._ack_quorum = ack_quorum
        self._write_sets = write_sets(ensemble_size, write_quorum)
        self._answers: dict[int, dict[int, Answer]] = {}
        self._carried = carried
        while self.present_to + 1 in carried:
            self.present_to += 1

    @property
    def below_floor(self) -> bool:
        """The end is proven and contradicts the floor: data is missing, close nothing."""
        return self.end is not None and self.end + 1 < self.floor

    def slots(self, entry_id: int) -> tuple[int, ...]:
        """The slots to ask about an entry."""
        return self._write_sets[entry_id % len(self._write_sets)]

    def to_ask(self, entry_id: int) -> tuple[int, ...]:
        """The slots of an undecided entry that gave no definite answer yet; none for a decided entry."""
        if self.verdict(entry_id) is not Verdict.UNDECIDED:
            return ()
        answers = self._answers.get(entry_id, {})
        return tuple(slot for slot in self.slots(entry_id) if not answers.get(slot, Answer.UNKNOWN).definite)

    def answered(self, entry_id: int, slot: int, answer: Answer) -> None:
        """Takes one answer; UNKNOWN changes nothing, and answers after the end was proven are ignored."""
        assert slot in self.slots(entry_id), f"slot {slot} does not hold entry {entry_id}"
        if self.end is not None or entry_id <= self.present_to or not answer.definite:
            return
        of_entry = self._answers.setdefault(entry_id, {})
        if of_entry.get(slot) is not Answer.HAVE:
            of_entry[slot] = answer
        self._decide()

    def found(self, entry_id: int) -> None:
        """Takes a valid copy of an entry, whichever slot it came from."""
        if self.end is not None or entry_id != self.present_to + 1:
            self.answered(entry_id, self.slots(entry_id)[0], Answer.HAVE)
            return
        self.present_to = entry_id
        if self._answers or entry_id + 1 in self._carried:
            self._answers.pop(entry_id, None)
            self._decide()

    def verdict(self, entry_id: int) -> Verdict:
        """What is proven about an entry so far."""
        if entry_id <= self.present_to or entry_id in self._carried:
            return Verdict.PRESENT
        answers = self._answers.get(entry_id, {})
        return entry_verdict(
            (answers.get(slot, Answer.UNKNOWN) for slot in self.slots(entry_id)),
            write_quorum=self._write_quorum,
            ack_quorum=self._ack_quorum,
            ask_all=entry_id < self.floor,
        )

    def _decide(self) -> None:
        while (verdict := self.verdict(self.present_to + 1)) is Verdict.PRESENT:
            self.present_to += 1
            self._answers.pop(self.present_to, None)
        if verdict is Verdict.ABSENT:
            self.end = self.present_to
