"""The process around a role: ports, loop, signals, memory."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import sys
from collections.abc import Iterator

import pytest

from boki_common.errors import SettingsError
from boki_common.runtime import heap, process
from boki_common.runtime.ports import Clock, Random
from boki_common.runtime.process import INTERRUPTED, SystemClock, SystemRandom, loop_factory, run, run_command


@pytest.fixture(params=["asyncio", "uvloop"])
def loop_kind(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    kind = str(request.param)
    if kind == "uvloop":
        pytest.importorskip("uvloop")
    monkeypatch.setenv("BOKI_LOOP", kind)
    return kind


def test_the_real_ports_are_ports() -> None:
    clock: Clock = SystemClock()
    rng: Random = SystemRandom()
    assert clock.now_ms() > 1_700_000_000_000
    assert len(rng.token(16)) == 16 and rng.token(16) != rng.token(16)
    assert {rng.below(3) for _ in range(200)} == {0, 1, 2}


def test_shuffling_leaves_the_argument_alone_and_reaches_every_order() -> None:
    rng = SystemRandom()
    items = (1, 2, 3)
    orders = {tuple(rng.shuffled(items)) for _ in range(400)}
    assert items == (1, 2, 3)
    assert len(orders) == 6 and all(sorted(order) == [1, 2, 3] for order in orders)
    assert rng.shuffled([]) == []


def test_the_loop_is_the_one_asked_for(loop_kind: str) -> None:
    async def main(_stop: asyncio.Event) -> int:
        module = type(asyncio.get_running_loop()).__module__
        assert module.startswith("uvloop" if loop_kind == "uvloop" else "asyncio")
        return 7

    assert run(main) == 7


def test_an_unknown_kind_of_loop_is_refused() -> None:
    with pytest.raises(SettingsError, match="expected BOKI_LOOP to be asyncio or uvloop, found 'trio'"):
        loop_factory({"BOKI_LOOP": "trio"})


def test_without_uvloop_asyncio_is_used_unless_uvloop_is_demanded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "uvloop", None)
    assert loop_factory({}) is asyncio.new_event_loop
    with pytest.raises(SettingsError, match=r"pip install uvloop"):
        loop_factory({"BOKI_LOOP": "uvloop"})


@pytest.mark.usefixtures("loop_kind")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_the_first_signal_asks_for_a_clean_stop(number: signal.Signals) -> None:
    async def main(stop: asyncio.Event) -> int:
        os.kill(os.getpid(), number)
        await stop.wait()
        return 0

    assert run(main) == 0
    assert signal.getsignal(number) in (signal.SIG_DFL, signal.default_int_handler)


@pytest.mark.usefixtures("loop_kind")
def test_the_second_signal_cancels() -> None:
    cleaned: list[bool] = []

    async def main(stop: asyncio.Event) -> int:
        os.kill(os.getpid(), signal.SIGTERM)
        await stop.wait()
        try:
            os.kill(os.getpid(), signal.SIGTERM)
            await asyncio.Event().wait()
        finally:
            cleaned.append(True)
        return 0

    assert run(main) == INTERRUPTED
    assert cleaned == [True]


@pytest.mark.usefixtures("loop_kind")
def test_a_command_is_cancelled_by_the_first_signal() -> None:
    async def main() -> int:
        os.kill(os.getpid(), signal.SIGINT)
        await asyncio.Event().wait()
        return 0

    assert run_command(main) == INTERRUPTED


def test_errors_and_cancellations_of_main_are_its_own() -> None:
    async def failing(_stop: asyncio.Event) -> int:
        raise SettingsError("wrong")

    async def cancelled(_stop: asyncio.Event) -> int:
        raise asyncio.CancelledError

    with pytest.raises(SettingsError, match="wrong"):
        run(failing)
    with pytest.raises(asyncio.CancelledError):
        run(cancelled)


def test_a_server_gives_back_the_memory_that_it_does_not_need(monkeypatch: pytest.MonkeyPatch) -> None:
    looks: list[bool] = []
    monkeypatch.setattr(heap, "LOOK_S", 0.001)
    if heap.HeapKeeper()._library is None:
        pytest.skip("the C library does not tell what it keeps")

    async def look(_keeper: heap.HeapKeeper) -> None:
        looks.append(True)

    monkeypatch.setattr(heap.HeapKeeper, "look", look)

    async def main(_stop: asyncio.Event) -> int:
        while len(looks) < 2:
            await asyncio.sleep(0)
        return 7

    assert run(main) == 7


@pytest.fixture
def _collector_restored() -> Iterator[None]:
    """Thaws what the run has frozen, and leaves it frozen to the tests that follow."""
    thresholds = gc.get_threshold()
    gc.unfreeze()
    assert gc.get_freeze_count() == 0
    yield
    gc.freeze()
    gc.set_threshold(*thresholds)


@pytest.mark.usefixtures("_collector_restored")
def test_frozen_objects_are_not_scanned_by_the_collector() -> None:
    process.freeze_garbage()
    assert gc.get_freeze_count() > 0
    assert gc.get_threshold()[0] == 50_000
