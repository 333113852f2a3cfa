"""One link without a network: answers come one by one or many at once, and mean the same; a bookie that takes nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from boki_common.bookkeeper import v2
from boki_common.bookkeeper.status import V2Status
from boki_common.errors import BokiError, ConnectionLost, Overloaded, ProtocolError
from boki_common.ids import BookieId
from boki_common.limits import MIB
from boki_common.metadata.memory import MemoryStore
from boki_common.net.connection import FrameConnection
from boki_ledger.bookies.bookie_directory import BookieDirectory
from boki_ledger.bookies.bookie_link import UNSENT_BYTES, BookieLink
from boki_ledger.testing.ledgers import QUICK, turns

ALONE = replace(QUICK, retry_least_s=1000.0, retry_most_s=1000.0)
OPEN, LEFT = 7, 8
"""A ledger with a channel, and one whose channel was closed with adds unanswered."""


class Listener:
    """Keeps what a channel tells, entry by entry."""

    def __init__(self) -> None:
        self.acked: list[int] = []
        self.refused: list[tuple[int, V2Status]] = []
        self.downs: list[BokiError] = []

    def channel_up(self) -> None: ...

    def channel_down(self, error: BokiError) -> None:
        self.downs.append(error)

    def adds_answered(self, acked: Sequence[tuple[int, int]], refused: Sequence[tuple[int, V2Status]]) -> None:
        for first, count in acked:
            self.acked += range(first, first + count)
        self.refused += refused


class Transport(asyncio.Transport):
    """Takes `room` bytes, keeps the rest, and asks not to be written to while there is any."""

    def __init__(self, connection: FrameConnection, room: int) -> None:
        super().__init__()
        self._connection = connection
        self._room = room

    def writelines(self, list_of_data: Iterable[Any]) -> None:
        self._room -= sum(map(len, list_of_data))
        if self._room < 0:
            self._connection.pause_writing()

    def get_write_buffer_size(self) -> int:
        return max(0, -self._room)

    def abort(self) -> None:
        asyncio.get_running_loop().call_soon(self._connection.connection_lost, None)


class World:
    """A link with channels of ledgers `OPEN` and `LEFT`, which found nobody and is given a connection by hand."""

    def __init__(self) -> None:
        directory = BookieDirectory(MemoryStore(), retry_s=1.0)
        self.link = BookieLink(BookieId("b1"), directory, ALONE, lambda _: None)
        self.listener = Listener()
        self.channel = self.link.open_channel(OPEN, self.listener)
        self.left = self.link.open_channel(LEFT, Listener())

    @classmethod
    async def begin(cls, *, room: int = MIB) -> World:
        world = cls()
        await turns(5)
        world.listener.downs.clear()
        world._connect(room)
        return world

    def _connect(self, room: int) -> None:
        self.connection = FrameConnection()
        self.connection.handler = self.link
        self.connection.connection_made(Transport(self.connection, room))
        self.link.connection = self.connection

    def state(self) -> object:
        """All that answers change."""
        answered = sorted(self.listener.acked), sorted(self.listener.refused)
        return answered, self.channel.unanswered, self.link.can_carry(LEFT), self.link.connection is None


def answers(entries: list[tuple[bool, bool]]) -> list[memoryview]:
    """One frame for each (of the open ledger, acknowledged), entries ascending per ledger."""
    following = {OPEN: 0, LEFT: 0}
    frames = []
    for is_open, acked in entries:
        ledger_id = OPEN if is_open else LEFT
        status = V2Status.OK if acked else V2Status.FENCED
        frames.append(memoryview(v2.encode_add_response(status, ledger_id, following[ledger_id]))[4:])
        following[ledger_id] += 1
    return frames


@given(st.lists(st.tuples(st.booleans(), st.booleans()), max_size=12), st.integers(0, 2), st.data())
def test_answers_mean_the_same_alone_and_together(
    entries: list[tuple[bool, bool]], more: int, data: st.DataObject
) -> None:
    frames = answers(entries)
    cuts = sorted(data.draw(st.sets(st.integers(1, max(1, len(frames))))))

    async def states() -> list[object]:
        found = []
        for ends in ([len(frames)], range(1, len(frames) + 1), [*cuts, len(frames)]):
            world = await World.begin()
            world.channel.unanswered = more + sum(is_open for is_open, _ in entries)
            world.left.unanswered = sum(not is_open for is_open, _ in entries)
            world.left.close()
            start = 0
            for end in ends:
                if frames[start:end]:
                    world.link.frames_received(frames[start:end])
                start = end
            found.append(world.state())
            await world.link.close()
        return found

    together, alone, cut = asyncio.run(states())
    assert together == alone == cut
    accepted = [acked for is_open, acked in entries if is_open]
    acks = [entry for entry, acked in enumerate(accepted) if acked]
    refusals = [(entry, V2Status.FENCED) for entry, acked in enumerate(accepted) if not acked]
    assert together == ((acks, refusals), more, True, False)


async def test_one_ack_too_many_ends_the_connection() -> None:
    world = await World.begin()
    world.channel.unanswered = 1
    (first, second) = answers([(True, True)] * 2)
    world.link.frames_received([first])
    assert world.state() == (([0], []), 0, False, False)
    world.link.frames_received([second])
    assert world.state() == (([0], []), 0, False, True)
    await world.connection.ended()
    (error,) = world.listener.downs
    assert isinstance(error, ProtocolError)
    assert "answered 1 adds of ledger 7, 0 were outstanding" in str(error)
    await world.link.close()


async def test_a_short_answer_ends_the_connection() -> None:
    world = await World.begin()
    world.channel.unanswered = 1
    world.link.frames_received([answers([(True, True)])[0][:-1]])
    assert world.state() == (([], []), 1, False, True)
    await world.link.close()


async def test_a_bookie_that_takes_nothing_is_dropped_once_too_much_waits_for_it() -> None:
    world = await World.begin(room=0)
    frame = (bytes(MIB),)
    for _ in range(UNSENT_BYTES // MIB):
        world.channel.send_all([frame], 1, frame)
    await asyncio.tasks.sleep(0)
    assert world.link.connection is not None and not world.listener.downs
    world.channel.send_all([frame], 1, frame)
    await world.connection.ended()
    (error,) = world.listener.downs
    assert isinstance(error, Overloaded)
    await world.link.close()


async def test_frames_that_are_sent_one_by_one_are_looked_after_as_well() -> None:
    world = await World.begin(room=-UNSENT_BYTES)
    world.connection.pause_writing()
    world.channel.send((b"x",))
    await world.connection.ended()
    assert isinstance(world.listener.downs[0], Overloaded)
    assert not isinstance(world.listener.downs[0], ConnectionLost)
    await world.link.close()
