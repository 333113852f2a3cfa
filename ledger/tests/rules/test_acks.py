"""The ack tracker against a plain model (a set of acks per entry), and its rules one by one."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from boki_common.errors import ProtocolError
from boki_ledger.rules.acks import AckTracker
from boki_ledger.rules.write_set import write_set


def tracker(size: int = 3, write_quorum: int = 3, ack_quorum: int = 2, *, entries: int = 0) -> AckTracker:
    made = AckTracker(ensemble_size=size, write_quorum=write_quorum, ack_quorum=ack_quorum)
    for _ in range(entries):
        made.submit()
    return made


def test_acks_of_the_predecessor_in_a_slot_do_not_count() -> None:
    acks = tracker(entries=1)
    acks.frozen = True
    acks.replace([0])
    acks.frozen = False
    acks.acked(0, 0, 0, 1)
    acks.acked(1, 0, 0, 1)
    assert acks.advance() == 0
    assert acks.generation(0) == 1


def test_a_change_without_the_freeze_is_a_programmers_error() -> None:
    with pytest.raises(AssertionError):
        tracker(entries=1).replace([0])


def test_an_ack_of_an_entry_never_submitted_is_refused_whole() -> None:
    acks = tracker(entries=2)
    with pytest.raises(ProtocolError, match="nobody sent"):
        acks.acked(0, 0, 0, 3)
    assert not acks.has_ack(0, 0)


def test_an_ack_from_outside_of_the_write_set_is_refused() -> None:
    acks = tracker(3, 2, 2, entries=3)
    with pytest.raises(ProtocolError, match="never sent"):
        acks.acked(2, 0, 0, 1)


def test_pending_follows_the_write_sets() -> None:
    acks = tracker(4, 2, 2, entries=8)
    assert list(acks.pending(0)) == [0, 3, 4, 7]
    acks.acked(0, 0, 3, 2)
    assert list(acks.pending(0)) == [0, 7]


@settings(max_examples=150, stateful_step_count=40, deadline=None)
class AckModel(RuleBasedStateMachine):
    """Model: a dict entry → set of (slot, generation) acks; completing is a loop over it."""

    @initialize(data=st.data())
    def begin(self, data: st.DataObject) -> None:
        self.size = data.draw(st.integers(1, 5))
        self.write_quorum = data.draw(st.integers(1, self.size))
        self.ack_quorum = data.draw(st.integers(1, self.write_quorum))
        self.acks = tracker(self.size, self.write_quorum, self.ack_quorum)
        self.model: dict[int, set[tuple[int, int]]] = {}
        self.generations = [0] * self.size
        self.lac = self.last = -1

    def set_of(self, entry_id: int) -> tuple[int, ...]:
        return write_set(entry_id, self.size, self.write_quorum)

    @rule(count=st.integers(1, 6))
    def submit(self, count: int) -> None:
        for _ in range(count):
            self.last += 1
            self.model[self.last] = set()
            assert self.acks.submit() == self.last

    @precondition(lambda self: self.last >= 0)
    @rule(data=st.data())
    def ack(self, data: st.DataObject) -> None:
        slot = data.draw(st.integers(0, self.size - 1))
        generation = data.draw(st.integers(max(0, self.generations[slot] - 1), self.generations[slot]))
        first = data.draw(st.integers(0, self.last))
        count = data.draw(st.integers(1, self.last - first + 1))
        entries = [entry for entry in range(first, first + count) if slot in self.set_of(entry)]
        for entry in entries:
            completed = self.acks.acked(slot, generation, entry, 1)
            self.model[entry].add((slot, generation))
            assert completed == (generation == self.generations[slot] and self.completes(range(entry, entry + 1)))

    @precondition(lambda self: self.write_quorum == self.size and self.last >= 0)
    @rule(data=st.data())
    def ack_run(self, data: st.DataObject) -> None:
        slot = data.draw(st.integers(0, self.size - 1))
        first = data.draw(st.integers(0, self.last))
        completed = self.acks.acked(slot, self.generations[slot], first, self.last - first + 1)
        for entry in range(first, self.last + 1):
            self.model[entry].add((slot, self.generations[slot]))
        assert completed == self.completes(range(first, self.last + 1))

    @rule()
    def freeze(self) -> None:
        self.acks.frozen = True

    @precondition(lambda self: self.acks.frozen)
    @rule(data=st.data())
    def change(self, data: st.DataObject) -> None:
        slots = data.draw(st.sets(st.integers(0, self.size - 1), min_size=1))
        self.acks.replace(sorted(slots))
        for slot in slots:
            self.generations[slot] += 1

    @rule()
    def thaw(self) -> None:
        self.acks.frozen = False

    @rule()
    def advance(self) -> None:
        before = self.lac
        while not self.acks.frozen and self.lac < self.last and self.quorum_of(self.lac + 1) >= self.ack_quorum:
            self.lac += 1
        assert self.acks.advance() == self.lac - before

    def completes(self, acked: range) -> bool:
        """Whether the first entry in flight was among them and is complete."""
        head = self.lac + 1
        return head in acked and self.quorum_of(head) >= self.ack_quorum

    def quorum_of(self, entry: int) -> int:
        return sum((slot, self.generations[slot]) in self.model[entry] for slot in self.set_of(entry))

    @invariant()
    def equal(self) -> None:
        if not hasattr(self, "acks"):
            return
        assert (self.acks.lac, self.acks.last) == (self.lac, self.last)
        assert self.acks.in_flight == self.last - self.lac
        for slot in range(self.size):
            expected = [
                entry
                for entry in range(self.lac + 1, self.last + 1)
                if slot in self.set_of(entry) and (slot, self.generations[slot]) not in self.model[entry]
            ]
            assert list(self.acks.pending(slot)) == expected
            for entry in range(self.lac + 1, self.last + 1):
                assert self.acks.has_ack(slot, entry) == ((slot, self.generations[slot]) in self.model[entry])


TestAckModel = AckModel.TestCase
