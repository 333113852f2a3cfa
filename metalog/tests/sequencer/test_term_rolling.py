"""A running term is asked whether it is full where something may have filled it, and by a timer from its first record on."""

from __future__ import annotations

import asyncio

from boki_metalog.entries.progress import CutBuilder
from boki_metalog.sequencer.term_rolling import TermRolling
from boki_metalog.settings import SequencerSettings


class Term:
    def __init__(self, **settings: float) -> None:
        self.may_roll = True
        self.looked = 0
        self.rolling = TermRolling(
            7,
            CutBuilder(time_ms=0),
            SequencerSettings(**settings),  # type: ignore[arg-type]
            may_roll=lambda: self.may_roll,
            aged=self._aged,
        )

    def _aged(self) -> None:
        self.looked += 1


async def test_a_term_of_many_entries_is_full_once_the_next_can_begin() -> None:
    term = Term(term_entries=3)
    for entries in (1, 2):
        term.rolling.ordered(entries, records=False, commands=False)
        assert term.rolling.perhaps_full(entries) is None
    term.may_roll = False
    term.rolling.ordered(3, records=False, commands=False)
    assert term.rolling.perhaps_full(3) is None
    term.may_roll = True
    full = term.rolling.perhaps_full(3)
    assert full is not None and "term 7 ends: it has 3 metalog entries" in str(full)


async def test_commands_make_it_look_and_nothing_else_does() -> None:
    term = Term(term_shards=1)
    builder = term.rolling._builder
    shard = builder.open("0a" * 16, 50)
    builder.take(1)
    builder.close(shard)
    builder.take(2)
    term.rolling.ordered(1, records=True, commands=False)
    assert term.rolling.perhaps_full(1) is None, "nobody looked at its shards"
    term.rolling.ordered(2, records=True, commands=True)
    assert term.rolling.perhaps_full(2) is not None
    term.rolling.end()


async def test_without_traffic_a_timer_looks_from_the_first_record_to_the_terms_end() -> None:
    term = Term(term_age_s=0.0, standby_check_s=0.0)
    term.rolling.ordered(1, records=False, commands=True)
    await asyncio.sleep(0)
    assert term.rolling._timer is None and not term.looked, "nothing was ordered"
    term.rolling.ordered(2, records=True, commands=False)
    while term.looked < 3:
        await asyncio.sleep(0)
    assert term.rolling.full(2) is not None
    term.rolling.end()
    looked = term.looked
    for _ in range(5):
        await asyncio.sleep(0)
    assert term.looked == looked
