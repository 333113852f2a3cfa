"""Sequencers are asked for their clocks, round after round, and a difference is logged once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from boki_common.errors import BokiError
from boki_common.metrics import Metrics
from boki_common.testing.machine import ManualClock
from boki_logbook.settings import EngineSettings
from boki_logbook.testing.engines import EngineCluster
from boki_logbook.testing.logs import ScriptedLink, ScriptedLog
from boki_logbook.upkeep import clock_watch
from boki_logbook.upkeep.clock_watch import ClockWatch
from boki_metalog.entries.sequencer_protocol import SequencerTime

NOW = 1_000_000
QUICK = EngineSettings(clock_check_s=0.001, clock_bound_s=5, replicas=1, acks=1)


class Lines:
    """What the watch writes to the log of the process."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.lines: list[tuple[str, dict[str, Any]]] = []
        monkeypatch.setattr(clock_watch, "_log", self)

    def warning(self, event: str, **facts: Any) -> None:
        self.lines.append((event, facts))

    info = warning

    def debug(self, event: str, **facts: Any) -> None: ...


class Watched:
    """A watch over a log whose sequencer says what `log.clock` is; `rounds` counts how often it was asked."""

    def __init__(self) -> None:
        self.log = ScriptedLog()
        self.log.install()
        self.link = ScriptedLink(self.log, self.log.term)
        self.metrics = Metrics()
        self.rounds = 0
        self.watch = ClockWatch(ManualClock(NOW), self._links, QUICK, self.metrics)
        self.task = asyncio.ensure_future(self.watch.run())

    def _links(self) -> dict[int, ScriptedLink]:
        self.rounds += 1
        return {0: self.link}

    async def more_rounds(self) -> None:
        """Until all that is true now was found, and one round more."""
        until = self.rounds + 3
        async with asyncio.timeout(10):
            while self.rounds < until:
                await asyncio.sleep(0)


@pytest.fixture
async def watched() -> AsyncIterator[Watched]:
    made = Watched()
    yield made
    made.task.cancel()
    await asyncio.wait([made.task])


async def test_a_difference_is_logged_when_it_begins_and_when_it_ends(
    watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = Lines(monkeypatch)
    watched.log.clock = SequencerTime(NOW + 60_000, NOW)
    await watched.more_rounds()
    assert [event for event, _ in said.lines] == ["clocks differ"]
    assert "60.0 s ahead of this engine's" in said.lines[0][1]["problem"]
    status = watched.watch.status(0)
    assert status is not None
    assert (status["ahead_ms"], status["log_ahead_ms"]) == (60_000, 0)
    assert "60.0 s ahead" in status["warning"]
    assert 'boki_engine_sequencer_clock_ahead_seconds{log="0"} 60' in watched.metrics.render().decode()
    watched.log.clock = SequencerTime(NOW + 1, NOW)
    await watched.more_rounds()
    assert [event for event, _ in said.lines] == ["clocks differ", "clocks agree again"]
    found = watched.watch.status(0)
    assert found is not None
    assert found["warning"] is None


async def test_a_sequencer_without_a_clock_or_away_is_passed_over(watched: Watched) -> None:
    await watched.more_rounds()
    assert watched.watch.status(0) is None
    watched.log.clock = SequencerTime(NOW, NOW)
    watched.link.up = False
    with pytest.raises(BokiError):
        await watched.link.clock()
    await watched.more_rounds()
    assert watched.watch.status(0) is None
    watched.link.up = True
    await watched.more_rounds()
    assert watched.watch.status(0) is not None


async def test_an_engine_and_a_sequencer_whose_clocks_differ(engines: EngineCluster) -> None:
    engine = await engines.start_engine(QUICK, clock=ManualClock(NOW))
    await engines.until(lambda: engine.status()["logs"][0]["clock"])
    clock = engine.status()["logs"][0]["clock"]
    assert clock["ahead_ms"] == 1_000 - NOW
    assert "999.0 s behind this engine's" in clock["warning"]
