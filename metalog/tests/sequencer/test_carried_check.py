"""What a sequencer carries is what its engine says it is."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from boki_metalog.entries.metalog_entry import ShardEnd
from boki_metalog.entries.sequencer_protocol import Carry
from boki_metalog.errors import UnfitCarry
from boki_metalog.sequencer.carried_check import check_carried

BodyOf = Callable[..., bytes]
KNOWN = ShardEnd(2, 3, 1)


def test_the_next_entry_of_its_shard_is_carried(body_of: BodyOf) -> None:
    check_carried(Carry(7, 2, 5, 2, body_of(7, 2, 3, 2)), KNOWN)


@pytest.mark.parametrize(
    ("term", "shard", "first", "count"),
    [(8, 2, 3, 2), (7, 1, 3, 2), (7, 2, 4, 1), (7, 2, 3, 1), (7, 2, 2, 3), (0, 0, 0, 2)],
    ids=["another term", "another shard", "a gap", "fewer records", "overlaps", "as an SDK sends it"],
)
def test_another_batch_than_its_row_says_is_refused(
    term: int, shard: int, first: int, count: int, body_of: BodyOf
) -> None:
    with pytest.raises(UnfitCarry, match="expected to carry records 3 to below 5 of shard 2 of term 7"):
        check_carried(Carry(7, 2, 5, 2, body_of(term, shard, first, count)), KNOWN)


@pytest.mark.parametrize("body", [b"garbage", bytes(64), bytes(200)])
def test_what_is_no_record_batch_is_refused(body: bytes) -> None:
    with pytest.raises(UnfitCarry, match="expected a record batch to carry, as entry 1 of shard 2"):
        check_carried(Carry(7, 2, 5, 2, body), KNOWN)


@pytest.mark.parametrize(("known", "entries"), [(None, 2), (KNOWN, 1), (KNOWN, 3)])
def test_what_will_not_be_taken_anyway_is_not_looked_at(known: ShardEnd | None, entries: int) -> None:
    check_carried(Carry(7, 2, 5, entries, b"garbage"), known)
