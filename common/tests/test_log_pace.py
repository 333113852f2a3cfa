"""Lines about what lasts for hours are few, count what they leave out, and end with the newest one."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

from boki_common.log_pace import LogPace
from boki_common.testing.virtual_time import VirtualTimeLoop, let_pass


def run(work: Coroutine[Any, Any, None]) -> None:
    """Run a coroutine in virtual time."""
    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        runner.run(work)


class Lines:
    """The lines that a pace of ten seconds writes, each with its time."""

    def __init__(self) -> None:
        self.written: list[tuple[float, dict[str, Any]]] = []
        self.pace = LogPace(self._write, "full", every_s=10.0)

    def _write(self, event: str, **facts: Any) -> None:
        assert event == "full"
        self.written.append((asyncio.get_running_loop().time(), facts))

    def taken(self) -> list[tuple[float, dict[str, Any]]]:
        """Return the new lines."""
        taken, self.written = self.written, []
        return taken


def test_a_line_an_interval_and_the_newest_is_written_when_it_ends() -> None:
    async def main() -> None:
        lines, begun = Lines(), asyncio.get_running_loop().time()
        lines.pace.say(number=0)
        assert lines.taken() == [(begun, {"number": 0})]
        await let_pass(1)
        for number in (1, 2, 3):
            lines.pace.say(number=number)
        await let_pass(8)
        assert lines.taken() == []
        await let_pass(8)
        assert lines.taken() == [(begun + 10, {"number": 3, "left_out": 2})]
        lines.pace.say(number=4)
        await let_pass(100)
        assert lines.taken() == [(begun + 20, {"number": 4})]
        lines.pace.say(number=5)
        assert lines.taken() == [(begun + 117, {"number": 5})], "after a silence at once"

    run(main())


def test_a_line_that_is_held_is_written_once_when_its_holder_ends() -> None:
    async def main() -> None:
        lines = Lines()
        with lines.pace as pace:
            for number in range(3):
                pace.say(number=number)
            assert [facts for _, facts in lines.taken()] == [{"number": 0}]
        pace.flush()
        await let_pass(100)
        assert [facts for _, facts in lines.taken()] == [{"number": 2, "left_out": 1}]

    run(main())


def test_what_is_over_is_said_to_its_end_and_begins_again_at_once() -> None:
    async def main() -> None:
        lines = Lines()
        for number in range(3):
            lines.pace.say(number=number)
        lines.pace.over()
        lines.pace.say(number=3)
        await let_pass(100)
        assert [facts for _, facts in lines.taken()] == [{"number": 0}, {"number": 2, "left_out": 1}, {"number": 3}]

    run(main())


def test_a_line_that_an_ended_loop_held_comes_before_those_of_the_next() -> None:
    lines = Lines()

    async def main(*numbers: int) -> None:
        for number in numbers:
            lines.pace.say(number=number)

    work: Coroutine[Any, Any, None]
    for work in (main(0, 1), main(2)):
        asyncio.run(work)
    assert [facts for _, facts in lines.taken()] == [{"number": 0}, {"number": 1}, {"number": 2}]
