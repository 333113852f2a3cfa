"""References to machines: as text, by key, of children."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from boki_common.errors import InvalidArgument
from bokilib.records.tags import PARTITIONS, partition_of
from bokirsm import Ref
from bokirsm.machine.refs import NAME_CHARS, child, keyed


def test_a_reference_is_a_text_and_a_value() -> None:
    ref = Ref.parse("words/17/a/b#2")
    assert (ref.group, ref.partition, ref.name, str(ref)) == ("words", 17, "a/b#2", "words/17/a/b#2")
    assert ref == Ref("words", 17, "a/b#2") and len({ref, Ref.parse(str(ref))}) == 1 and ref != "words/17/a/b#2"


@pytest.mark.parametrize(
    "text", ["", "words", "words/17", "words/x/a", "/1/a", "words/1/", "words/64/a", "words/07/a", "words/٣/a", 5]
)
def test_what_is_no_reference_is_refused(text: str) -> None:
    with pytest.raises(InvalidArgument, match="group/partition/name"):
        Ref.parse(text)


def test_keys_have_partitions_and_children_have_names_of_their_own() -> None:
    ref = keyed("g", "ann", None)
    assert ref.partition == partition_of("ann") < PARTITIONS and keyed("g", "bob", ref).partition == ref.partition
    assert str(child(ref, 3, ref)) == f"g/{ref.partition}/ann#3"
    assert child(ref, 3, None).partition == partition_of("ann#3")
    assert child(ref, 3, ref, life=77).name == "ann#77.3", "the key may be used again"
    for key in ("", "a#1", "x" * (NAME_CHARS + 1)):
        with pytest.raises(InvalidArgument, match="expected a key"):
            keyed("g", key, None)


def test_no_machine_is_in_a_partition_that_does_not_exist() -> None:
    parent: Ref[Any] = Ref("g", 1, "ann")
    places: list[Callable[[Ref[Any]], Ref[Any]]] = [partial(keyed, "g", "ann"), partial(child, parent, 3)]
    for place in places:
        assert place(Ref("g", PARTITIONS - 1, "x")).partition == PARTITIONS - 1
        with pytest.raises(InvalidArgument, match="a partition from 0 to 63"):
            place(Ref("g", PARTITIONS, "x"))


def test_names_of_descendants_stay_short_and_differ() -> None:
    deep: Ref[Any] = Ref("g", 1, "x" * NAME_CHARS)
    other = deep
    for _ in range(100):
        deep, other = child(deep, 1, None), child(other, 2, None)
    assert len(deep.name) < 2 * NAME_CHARS and deep != other
