"""Events of the store, as they are stored."""

from __future__ import annotations

import msgspec

from bokistore import Inc, Push, Set
from bokistore.model.events import Commit, Ops, size_of


def test_the_form_of_operations() -> None:
    stored = msgspec.msgpack.decode(msgspec.msgpack.encode(Ops("x", (Set("a.b", [1]), Push("l", 1, 24), Inc("n", 2)))))
    assert stored == ["store.ops", "x", [["set", "a.b", [1]], ["push", "l", 1, 24], ["inc", "n", 2]]]


def test_its_size_is_what_it_takes_in_a_record() -> None:
    event = Commit("x", (Set("a", "x" * 100),), 7)
    assert size_of(event) == len(msgspec.msgpack.encode(event))
