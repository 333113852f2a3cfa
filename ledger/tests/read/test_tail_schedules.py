"""A follower against a plain model, in any order of events: it gives the acknowledged prefix, each entry once, to the end."""

from __future__ import annotations

import asyncio
from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from boki_common.testing.virtual_time import VirtualTimeLoop
from boki_ledger.testing.ledgers import QUICK, Ledgers

LONG_RETRIES = replace(
    QUICK,
    retry_for_s=60.0,
    retry_least_s=0.01,
    retry_most_s=0.2,
    suspect_s=0.01,
    explicit_lac_ms=5.0,
    answer_timeout_s=1.0,
)
BOOKIES = ("b1", "b2", "b3", "b4")

STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.integers(1, 3)),
        st.tuples(st.just("pass time"), st.integers(1, 200)),
        st.tuples(st.sampled_from(["crash", "restart", "end polls", "refuse polls"]), st.integers(0, 3)),
    ),
    max_size=30,
)


class Run:
    """One schedule. At most one bookie is down at a time, so that writer and reader can always go on."""

    def __init__(self) -> None:
        self.ledgers = Ledgers()
        self.got: list[int] = []
        self.down: str | None = None

    async def run(self, steps: list[tuple[str, int]]) -> None:
        ledgers = self.ledgers
        ledgers.bookies.register(*BOOKIES)
        await ledgers.start()
        self.writer = await (await ledgers.other_client(LONG_RETRIES)).create()
        reader = await (await ledgers.other_client(LONG_RETRIES)).open(self.writer.ledger_id, recover=False)

        async def follow() -> None:
            async for entry_id, payload in reader.follow(0, wait_s=0.5):
                assert payload == b"%d" % entry_id and entry_id == len(self.got)
                assert entry_id <= self.writer.last_acked or reader.closed, "an entry that recovery might have dropped"
                self.got.append(entry_id)

        task = asyncio.ensure_future(follow())
        for kind, number in steps:
            await self.step(kind, number)
            assert not task.done()
        if self.down is not None:
            ledgers.bookies.restart(self.down)
        await asyncio.sleep(2 * LONG_RETRIES.answer_timeout_s)
        assert len(self.got) == self.writer.last_acked + 1, "an idle writer's last entry is seen without a close"
        closed = await (await ledgers.other_client(LONG_RETRIES)).open(self.writer.ledger_id, recover=True)
        await task
        assert self.got == list(range(closed.last_entry + 1))
        await closed.close()
        await reader.close()
        await ledgers.close()

    async def step(self, kind: str, number: int) -> None:
        bookies, bookie = self.ledgers.bookies, BOOKIES[number % len(BOOKIES)]
        if kind == "append":
            for _ in range(number):
                self.writer.submit(b"%d" % (self.writer.last_submitted + 1))
        elif kind == "pass time":
            await asyncio.sleep(number / 1000)
        elif kind == "crash" and self.down is None:
            self.down = bookie
            bookies.crash(bookie)
        elif kind == "restart" and self.down is not None:
            bookies.restart(self.down)
            self.down = None
        elif kind == "end polls":
            bookies.end_polls(bookie)
        elif kind == "refuse polls":
            bookies[bookie].serves_polls = not bookies[bookie].serves_polls


@settings(max_examples=100, deadline=None)
@given(STEPS)
def test_a_follower_gives_the_acknowledged_prefix_and_ends_with_the_ledger(steps: list[tuple[str, int]]) -> None:
    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        runner.run(Run().run(steps))
