"""What of a partition may not be over."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from bokiflow.history.instance_state import PartitionFold, checkpoint, starts_of
from bokiflow.model.flow_events import PartitionCheckpoint


def fed(fold: PartitionFold, time_ms: int, ids: dict[str, int], covers: int, limit: int = 40, by: str = "a") -> int:
    parts = checkpoint("g", 3, ids, covers, covers, limit)
    for part in parts:
        fold.checkpointed(time_ms, by, part)
    return len(parts)


def test_what_a_checkpoint_does_not_have_is_over() -> None:
    fold = PartitionFold()
    for seqnum, id in enumerate("abcdef", 1):
        fold.started(seqnum, seqnum * 10, id)
    assert (fold.starts, fold.oldest_ms) == (6, 10)
    assert fed(fold, 100, {"b": 2, "c": 3}, 4) == 1
    assert fold.ids == {"b": 2, "c": 3, "e": 5, "f": 6}
    assert (fold.starts, fold.oldest_ms, fold.collected) == (2, 100, 4)
    fold.drop()
    assert (fold.ids, fold.starts, fold.since_ms) == ({}, 0, 0)
    fold.sent(7)
    fold.sent(9)
    assert fold.since_ms == 7


def test_parts_count_when_all_are_there_and_of_one_writer() -> None:
    ids = {f"{number:030}": number for number in range(1, 6)}
    parts = checkpoint("g", 3, ids, 9, 0, 60)
    assert len(parts) == 5 and sorted(id for part in parts for id in part.ids) == sorted(ids)
    fold = PartitionFold()
    fold.started(1, 1, "over")
    for part in parts[:3]:
        fold.checkpointed(2, "a", part)
    for part in parts[3:]:
        fold.checkpointed(2, "b", part)
    assert fold.ids == {"over": 1}, "two writers began, and none ended"
    for part in parts:
        fold.checkpointed(3, "b", part)
    assert fold.ids == ids


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 9)), max_size=30))
def test_whatever_is_checkpointed_when_what_is_alive_is_found(steps: list[tuple[bool, int]]) -> None:
    """Against a plain model: of what was started, what did not end; checkpoints are of what was so at their `covers`."""
    fold = PartitionFold()
    alive: dict[str, int] = {}
    for place, (starts, number) in enumerate(steps, 1):
        if starts:
            id = f"x{place}"
            alive[id] = place
            fold.started(place, place, id)
        else:
            covers = max(0, place - 1 - number)
            over = [id for id, start in alive.items() if start <= covers and start % 2]
            for id in over:
                del alive[id]
            fed(fold, place, {id: start for id, start in alive.items() if start <= covers}, covers)
        assert alive.items() <= fold.ids.items()


def test_starts_of_a_checkpoint_of_an_older_program_are_unknown() -> None:
    assert starts_of(PartitionCheckpoint("g", 3, ("a", "b"), 9)) == {"a": 0, "b": 0}
    assert starts_of(PartitionCheckpoint("g", 3, ("a", "b"), 9, (4, 7))) == {"a": 4, "b": 7}
