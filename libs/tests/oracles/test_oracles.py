"""Random runs of the real libraries against plain oracles: a few seeds each time, thousands every night. Planted faults are found."""

from __future__ import annotations

from collections import Counter
from typing import Final

import pytest

from bokilib.records.events import encode, open_record
from bokiqueue.checkpoint import checkpointing
from bokistore.model.events import Commit
from bokistore.model.operations import Inc, Set
from libs.tests.oracles import queue_run, store_run, tables_run
from libs.tests.oracles.seeds import Run, constants, run_seed, run_seeds
from libs.tests.oracles.store_run import OBJECTS, Oracle, Seen

pytestmark = [pytest.mark.blocking_allowed, pytest.mark.timeout(300)]

NIGHTLY: Final = 3_000
BLOCK: Final = 250
"""Seeds of one nightly test: blocks run at the same time."""
BLOCKS: Final = [range(first, first + BLOCK) for first in range(1, NIGHTLY + 1, BLOCK)]


def test_stores_are_what_their_log_says() -> None:
    counted = run_seeds(store_run.run, range(1, 51))
    assert counted["commits"] > 400 and counted["reads"] > 250


def test_queues_hand_out_each_message_once_and_lose_none() -> None:
    counted = run_seeds(queue_run.run, range(1, 9))
    assert counted["effects"] > 100


def test_rows_of_tables_have_each_committed_change_once() -> None:
    counted = run_seeds(tables_run.run, range(1, 31))
    assert counted["committed"] > 600 and counted["deaths"] > 50


def test_rows_that_share_their_cells_with_callers_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The planted tables hand out the cells that they cache."""
    monkeypatch.setattr("bokiflow.tables.schema.copy_json", lambda value: value)
    with pytest.raises((AssertionError, ExceptionGroup)):
        run_seeds(tables_run.run, range(1, 11))


@pytest.mark.nightly
@pytest.mark.timeout(3_600)
@pytest.mark.parametrize("seeds", BLOCKS, ids=str)
def test_thousands_of_tables_have_each_committed_change_once(seeds: range) -> None:
    run_seeds(tables_run.run, seeds)


@pytest.mark.nightly
@pytest.mark.timeout(3_600)
@pytest.mark.parametrize("seeds", BLOCKS, ids=str)
def test_thousands_of_stores_are_what_their_log_says(seeds: range) -> None:
    run_seeds(store_run.run, seeds)


@pytest.mark.nightly
@pytest.mark.timeout(3_600)
@pytest.mark.parametrize("seeds", BLOCKS, ids=str)
def test_thousands_of_queues_hand_out_each_message_once_and_lose_none(seeds: range) -> None:
    run_seeds(queue_run.run, seeds)


def test_a_member_that_got_its_shard_back_and_counts_as_dead_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The planted owner takes the messages of its own earlier claim for those of a process that died. Seed 1 finds it."""
    monkeypatch.setattr("bokiqueue.shard.shard_owner.spares", lambda last, scope: False)
    with pytest.raises(AssertionError, match="which was not lost"):
        run_seeds(queue_run.run, range(1, 2))


def commit(number: int, reads: dict[str, object]) -> Commit:
    return Commit(f"log/{number}", (Set("", {"reads": reads, "ids": None}),), 0)


def oracle(*records: tuple[Commit, ...]) -> Oracle:
    """Return records at the places 5, 6, …"""
    return Oracle({at: (0, open_record(at, encode("p", 0, events))) for at, events in enumerate(records, 5)})


def test_the_oracle_of_stores_finds_a_lost_update_and_a_read_of_no_state() -> None:
    first = (commit(1, {"a": None}), Commit("a", (Inc("n", 1),), 0))
    good = oracle(first, (commit(2, {"a": {"n": 1}}),))
    assert good.last.objects == {**dict.fromkeys(OBJECTS), "a": {"n": 1}}
    with pytest.raises(AssertionError, match=r"log/2 read a as None, the log has \{'n': 1\}"):
        oracle(first, (commit(2, {"a": None}),))
    good.check(Seen(0, {"a": None}))
    good.check(Seen(0, {"a": {"n": 1}}, place=6))
    for wrong in (
        Seen(5, {"a": None}),
        Seen(0, {"a": None}, place=5),
        Seen(0, {"a": {"n": 2}}),
        Seen(0, {}, ids=["x"]),
    ):
        with pytest.raises(AssertionError, match="no state of the log"):
            good.check(wrong)


def test_a_seed_that_fails_says_how_to_run_it_alone() -> None:
    with pytest.raises(AssertionError) as failed:
        run_seed(failing, 17)
    assert failed.value.__notes__ == [
        "seed 17; run it alone: .venv/bin/python -m libs.tests.oracles.test_oracles --first 17 --seeds 1"
    ]


async def failing(seed: int) -> Counter[str]:
    raise AssertionError(f"planted in seed {seed}")


def test_a_seed_is_the_same_run_each_time() -> None:
    runs: tuple[Run, ...] = (store_run.run, queue_run.run, tables_run.run)
    for run in runs:
        assert run_seed(run, 5) == run_seed(run, 5)


def test_constants_are_as_before_after_a_run() -> None:
    before = checkpointing.RECORDS_BETWEEN
    with constants((checkpointing, "RECORDS_BETWEEN", before + 1)):
        assert before + 1 == checkpointing.RECORDS_BETWEEN
    assert before == checkpointing.RECORDS_BETWEEN
