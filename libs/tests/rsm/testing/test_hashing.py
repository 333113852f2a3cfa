"""The builtin `hash` in a run."""

from __future__ import annotations

import builtins
from typing import Any

from bokirsm import Ref
from bokirsm.testing.hashing import Hashes


class Own:
    def __init__(self, name: str) -> None:
        self.name = name

    def __hash__(self) -> int:
        return hash(self.name)


def test_the_hash_of_a_text_is_that_of_the_process() -> None:
    hashes, real = Hashes(), builtins.hash
    values: list[Any] = ["text", b"bytes", ("a", 1, ("b",))]
    with hashes.instead():
        first = [hash(one) for one in values]
        assert first == [hash(one) for one in values]
        hashes.process = 1
        assert not {*first} & {hash(one) for one in values}
        hashes.process = 0
        assert first == [hash(one) for one in values]
    assert builtins.hash is real
    assert first[0] == 643240293446784194, "in each process of Python it is the same"


def test_all_other_hashes_are_those_of_python() -> None:
    own, hashes = Own("a"), Hashes()
    ref: Ref[Any] = Ref("g", 1, "m")
    values: list[Any] = [7, 1.5, None, own, ref, frozenset({"a"})]
    before = [hash(one) for one in values]
    with hashes.instead():
        assert [hash(one) for one in values] == before
        assert {own: 1, ref: 2}[ref] == 2
