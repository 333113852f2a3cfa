"""One wrong-code run: workflows of which a hundredth is of each kind of bad code, on workers that are killed and redeployed all the time.

    found = await trial(directory, count=10_000, seconds=60, seed=1, say=print)
    found.faults                                    # sentences; none

For `seconds` one worker after the other is killed with kill -9 and begins again, with the old or the new code by turns. Then all have the
new code. Each good workflow has to end with its result, and `boki flow show` has to say of each bad one what is wrong with it.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Final, NamedTuple

import boki
from boki_cli.demo.local_cluster import LocalCluster
from bokiflow import Flow, WorkflowCancelled
from bokiflow_tools.reading import life_of
from bokiflow_tools.wording import life_lines
from examples.supervisor import CommandLine, Supervisor, module_command
from itests.chaos.app import answered
from itests.wrong_code.app import BAD, BOOK, FAILS, STUCK, program

WORKERS: Final = 4
AT_ONCE: Final = 64
HUNDREDTH: Final = 100
LOOK_EVERY_S: Final = 1.0
STRIKE_EVERY_S: Final = 2.0
"""A worker that is begun needs a second or two until it runs something."""
REASON: Final = "it takes too long"


class Found(NamedTuple):
    """What became of a run.

    Attributes:
        kinds: how many workflows there were of each kind. became: of each kind and status. faults: sentences; none.
        kills: of workers. settled_s: from the last kill until all had become what they can.
    """

    kinds: Counter[str]
    became: Counter[str]
    faults: list[str]
    kills: int
    settled_s: float


def kinds(count: int) -> list[str]:
    """Return the kind of each workflow: a hundredth of each bad one, and of those that only the new code has."""
    special = [*BAD, "new_only"]
    return [special[number % HUNDREDTH] if number % HUNDREDTH < len(special) else "good" for number in range(count)]


def expected(kind: str, number: int) -> int:
    """Return the result of a good workflow."""
    return 2 * number if kind == "new_only" else 3 * number + 1


async def trial(
    directory: Path,
    *,
    count: int,
    seconds: float,
    settle_s: float,
    seed: int = 1,
    stuck_after_s: float = 0.5,
    block_s: float = 1.5,
    say: Callable[[str], None] = lambda _: None,
) -> Found:
    """Run one; see the module.

    Args:
        settle_s: all have to become what they can so long after the last kill.
        block_s: for which `time.sleep` blocks a worker.
    """
    chance = random.Random(seed)
    wanted = kinds(count)
    programs = Supervisor(directory / "workers.log")
    kills, code = 0, "old"
    try:
        async with LocalCluster(directory, bookies=3) as cluster, boki.connect(cluster.url) as client:

            def command(code: str) -> CommandLine:
                options = ("--code", code, "--stuck-after", str(stuck_after_s), "--block", str(block_s))
                return module_command("itests.wrong_code.app", cluster.url, *options)

            async with Flow(program("all"), client.book(BOOK)) as flow:
                for number in range(WORKERS):
                    await programs.start(f"worker-{number}", command(code))
                starting = asyncio.create_task(_start(flow, wanted, seconds))
                end = perf_counter() + seconds
                while perf_counter() < end or not starting.done():
                    await asyncio.sleep(STRIKE_EVERY_S)
                    victim = f"worker-{chance.randrange(WORKERS)}"
                    code = "new" if code == "old" else "old"
                    kills += 1
                    await programs.kill(victim)
                    await programs.start(victim, command(code))
                await starting
                for victim in programs.slots:
                    await programs.kill(victim)
                    await programs.start(victim, command("new"))
                last_kill = perf_counter()
                became = await _settled(flow, wanted, last_kill + settle_s, say)
                settled = perf_counter() - last_kill
                faults = await _faults(flow, wanted, became)
                await programs.end()
    finally:
        await programs.clear()
    found = Counter(f"{kind} {status}" for kind, status in zip(wanted, became, strict=True))
    return Found(Counter(wanted), found, [*faults, *programs.faults], kills, settled)


async def _start(flow: Flow, wanted: list[str], seconds: float) -> None:
    """Start all, spread over two thirds of the time."""
    began, at_once = perf_counter(), asyncio.Semaphore(AT_ONCE)

    async def start(number: int, kind: str) -> None:
        async with at_once:
            await answered(partial(flow.start, flow.app.find(kind).call(number), id=f"{kind}-{number}"))

    async with asyncio.TaskGroup() as group:
        for number, kind in enumerate(wanted):
            group.create_task(start(number, kind))
            early_s = number / len(wanted) * seconds * 2 / 3 - (perf_counter() - began)
            await asyncio.sleep(max(0.0, early_s))


async def _settled(flow: Flow, wanted: list[str], until_s: float, say: Callable[[str], None]) -> list[str]:
    """Send what is waited for, and wait until each has become what it can; return how each stands."""
    became = [""] * len(wanted)
    open_ = list(range(len(wanted)))
    for number, kind in enumerate(wanted):
        if kind == "changed":
            await answered(partial(flow.handle(f"{kind}-{number}").signal, "go"))
    while open_ and perf_counter() < until_s:
        left = []
        for at in range(0, len(open_), AT_ONCE):
            some = open_[at : at + AT_ONCE]
            statuses = await asyncio.gather(
                *(answered(flow.handle(f"{wanted[number]}-{number}").status) for number in some)
            )
            for number, status in zip(some, statuses, strict=True):
                became[number] = status
                if not _final(wanted[number], status):
                    left.append(number)
        open_ = left
        say(f"{len(open_)} left: {dict(Counter(f'{wanted[number]} {became[number]}' for number in open_))}")
        await asyncio.sleep(LOOK_EVERY_S if open_ else 0)
    return became


def _final(kind: str, status: str) -> bool:
    if kind in ("good", "new_only"):
        return status == "completed"
    if kind == "hangs":
        return status == "running"
    if kind in ("polls", "loops", "ghost"):
        return status == "blocked"
    return status in ("completed", "failed", "blocked")


async def _faults(flow: Flow, wanted: list[str], became: list[str]) -> list[str]:
    """Compare what became of each with what has to; what a person sees of the bad ones is what `boki flow show` prints."""
    faults: list[str] = []
    for number, (kind, status) in enumerate(zip(wanted, became, strict=True)):
        id = f"{kind}-{number}"
        if kind in ("good", "new_only"):
            known = await flow.known(id)
            if status != "completed" or known is None or known.outcome is None:
                faults.append(f"{id} is good, and {status}{'' if known is None else f': {known.blocked}'}")
            elif known.outcome.value != expected(kind, number):
                faults.append(f"{id} returned {known.outcome.value}, expected {expected(kind, number)}")
            continue
        if kind == "hangs":
            await flow.handle(id).cancel(REASON)
            try:
                await flow.handle(id).result()
            except WorkflowCancelled:
                pass
        shown = "\n".join(life_lines(await life_of(flow.log, id), str))
        if not all(text in shown for text in _explained(kind, status)):
            faults.append(f"{id} is {status}, and `boki flow show` says:\n{shown}")
    return faults


def _explained(kind: str, status: str) -> tuple[str, ...]:
    """Return what `boki flow show` has to say of a bad workflow."""
    if kind in FAILS:
        return ("failed", FAILS[kind], "stack, innermost call last:")
    if kind == "blocks" and status == "completed":
        return ("completed",)  # on a busy machine the watching thread may be late, and what blocked for a while is done
    if kind in STUCK:
        return ("blocked", "WorkflowStuck", f"in {kind}")
    if kind == "ghost":
        return ("blocked", "NotRegistered", "'ghost'")
    if kind == "hangs":
        return ("cancelled", REASON)
    return ("completed",) if status == "completed" else ("blocked", "NonDeterminism", "old_step")
