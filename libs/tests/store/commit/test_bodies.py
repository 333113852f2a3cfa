"""Bodies of transactions that are slow, hang, or raise whatever there is: each concerns its own caller alone."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Awaitable, Callable

import pytest

from bokistore import BokiStore, InTransaction, StoreSettings, Transaction, TransactionTimeout
from bokistore.commit.bodies import Bodies
from bokistore.commit.jobs import Job, TransactionSpec
from bokistore.commit.transaction_rules import Overlay
from libs.tests.store.conftest import Another

AsATransaction = Callable[[Transaction], Awaitable[object]]


async def bump(tx: Transaction, name: str) -> int:
    before = await tx[name].get("n", 0)
    assert isinstance(before, int)
    tx[name].set("n", before + 1)
    return before


async def test_a_body_that_hangs_holds_up_no_other(store: BokiStore) -> None:
    go = asyncio.Event()

    async def hangs(tx: Transaction) -> str:
        await bump(tx, "a")
        await go.wait()
        return "slow"

    slow = asyncio.ensure_future(store.transact(hangs))
    assert await asyncio.gather(*(store.transact(bump, f"b{n}") for n in range(3))) == [0, 0, 0]
    assert await store.transact(bump, "a") == 0, "on its object, too"
    assert not slow.done()
    go.set()
    assert await slow == "slow"
    assert await store.object("a").get("n") == 2


async def test_a_slow_body_on_a_hot_object_commits_and_others_go_on(store: BokiStore) -> None:
    """It loses some times to those that are faster; then it has the turn for its object."""
    runs, commits = 0, 0

    async def slow(tx: Transaction) -> int:
        nonlocal runs
        runs += 1
        found = await bump(tx, "hot")
        for _ in range(200):
            await asyncio.sleep(0)
        return found

    async def others() -> None:
        nonlocal commits
        while True:
            await store.transact(bump, "hot")
            commits += 1

    async def elsewhere() -> int:
        count = 0
        while not task.done():
            await store.transact(bump, "cold")
            count += 1
        return count

    busy = asyncio.ensure_future(others())
    task = asyncio.ensure_future(store.transact(slow))
    went_on = asyncio.ensure_future(elsewhere())
    async with asyncio.timeout(30):
        await task
    busy.cancel()
    await asyncio.gather(busy, return_exceptions=True)
    assert runs <= 6 and await went_on > runs
    assert await store.object("hot").get("n") == commits + 1


async def test_a_body_that_takes_too_long_ends_with_an_error_that_names_it(another: Another) -> None:
    store = await another(StoreSettings(checkpoints=False, grace_ms=50))
    kept: list[Transaction] = []
    cancelled = False

    async def endless(tx: Transaction) -> None:
        nonlocal cancelled
        kept.append(tx)
        try:
            await bump(tx, "a")
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled = True
            raise

    with pytest.raises(TransactionTimeout, match=r"endless.* ran for 0\.\d s.*grace_ms.*step of a workflow") as raised:
        await store.transact(endless)
    assert raised.value.definite and not raised.value.retryable
    assert raised.value.facts["expected"] == 0.05
    await asyncio.sleep(0)
    assert cancelled
    with pytest.raises(InTransaction):
        kept[0]["a"].inc("n")
    assert await store.object("a").value() is None
    assert await store.transact(bump, "a") == 0


async def test_a_body_whose_process_stood_still_has_its_time_once_more(store: BokiStore) -> None:
    """The clock is looked at a minute late, twice: at first nobody is blamed."""
    failed: list[BaseException] = []
    bodies = Bodies(store.views, 600.0, ran=lambda job, on: None, failed=lambda job, error: failed.append(error))

    async def waits(tx: Transaction) -> None:
        await asyncio.Event().wait()

    job = Job(1, TransactionSpec(waits, "waits", "snapshot", "session"), 0)
    bodies.start(job, Overlay(), ())
    await asyncio.sleep(0)
    for expected in (0, 1):
        job.began_s -= 660.0
        bodies._looks_s -= 660.0
        bodies._look_at_clock()
        assert len(failed) == expected
    assert isinstance(failed[0], TransactionTimeout)
    bodies.forget(job)
    assert job.task is not None
    await asyncio.gather(job.task, return_exceptions=True)


async def test_a_body_that_ignores_its_end_is_left_to_itself(another: Another) -> None:
    store = await another(StoreSettings(checkpoints=False, grace_ms=50))
    ends = asyncio.Event()

    async def stubborn(tx: Transaction) -> None:
        while not ends.is_set():
            try:
                await ends.wait()
            except asyncio.CancelledError:
                pass

    with pytest.raises(TransactionTimeout):
        await store.transact(stubborn)
    assert await store.transact(bump, "a") == 0
    ends.set()


def plain_function(tx: Transaction) -> Awaitable[object]:
    raise next(iter([StopIteration("empty")]))


@pytest.mark.parametrize(
    ("error", "raised"),
    [
        (SystemExit(3), SystemExit),
        (KeyboardInterrupt(), KeyboardInterrupt),
        (GeneratorExit(), GeneratorExit),
        (asyncio.CancelledError("nobody asked"), asyncio.CancelledError),
        (ExceptionGroup("two", [ValueError("a"), KeyError("b")]), ExceptionGroup),
        (BaseExceptionGroup("two", [SystemExit(1)]), BaseExceptionGroup),
        (ValueError("\ud83d" * 10), ValueError),
        (ValueError("x" * 5_000_000), ValueError),
        (StopAsyncIteration(), StopAsyncIteration),
    ],
)
async def test_whatever_a_body_raises_is_its_callers_alone(
    store: BokiStore, error: BaseException, raised: type[BaseException]
) -> None:
    async def body(tx: Transaction) -> None:
        await bump(tx, "x")
        raise error

    found: list[BaseException] = []

    async def caller() -> None:
        try:
            await store.transact(body)
        except BaseException as same:  # noqa: BLE001 - that is what is tested
            found.append(same)

    before, _, after = await asyncio.gather(store.transact(bump, "x"), caller(), store.transact(bump, "x"))
    assert [type(one) for one in found] == [raised] and found[0] is error
    assert sorted([before, after]) == [0, 1]
    assert await store.transact(bump, "x") == 2, "the store goes on"


async def test_stop_iteration_of_a_function_is_an_error_that_a_future_carries(store: BokiStore) -> None:
    with pytest.raises(RuntimeError, match=r"plain_function.*StopIteration") as raised:
        await store.transact(plain_function)
    assert isinstance(raised.value.__cause__, StopIteration)


async def test_a_caller_that_gives_up_ends_its_body(store: BokiStore) -> None:
    begun, ended = asyncio.Event(), asyncio.Event()

    async def endless(tx: Transaction) -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    task = asyncio.ensure_future(store.transact(endless))
    await begun.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert ended.is_set(), "before the caller goes on"


async def test_a_body_sees_the_context_of_its_own_caller(store: BokiStore) -> None:
    request: contextvars.ContextVar[str] = contextvars.ContextVar("request")

    async def handle(name: str) -> list[str]:
        request.set(name)
        seen: list[str] = []

        async def body(tx: Transaction) -> None:
            seen.append(request.get())
            await bump(tx, "x")

        await store.transact(body)
        return seen

    found = await asyncio.gather(*(handle(f"r{n}") for n in range(5)))
    assert [set(seen) for seen in found] == [{f"r{n}"} for n in range(5)]
    assert max(len(seen) for seen in found) > 1, "also when it runs again"
