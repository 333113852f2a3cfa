"""The network that Retwis is measured on, and its mix as a closed loop, on whichever of the peers."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Sequence
from typing import Any, Final, Protocol

from benchmarks.closed_loop import Once
from bokistore import BokiStore, JsonObject, Set
from examples.retwis.app import TIMELINE, Choose, new_user, user, username
from examples.retwis.mix import OperationMix

SEED: Final = 23333
"""The paper's."""
FOLLOWEES: Final = 8
PASSWORD: Final = "secret"
OUTSTANDING: Final = 512
"""Objects under way while the network is made."""


class Peer(Protocol):
    """What the mix asks for; see `examples.retwis.app.Retwis`."""

    async def login(self, name: str, password: str) -> str | None: ...
    async def profile(self, id: str) -> Any: ...
    async def posts(self, id: str | None) -> list[Any]: ...
    async def post(self, author: str, id: str, body: str, choose: Choose) -> list[str]: ...


def id_of(number: int) -> str:
    """The id of a user."""
    return f"{number + 1:08x}"


def network(users: int) -> list[tuple[str, JsonObject]]:
    """Every object of a network in which each follows some others, at random but always the same."""
    chance = random.Random(SEED)
    found = [new_user(f"user-{number}", PASSWORD) for number in range(users)]
    for number, one in enumerate(found):
        others = [other for other in chance.sample(range(users), min(users, FOLLOWEES + 1)) if other != number]
        followees = others[:FOLLOWEES]
        one |= {"followees": {id_of(other): True for other in followees}, "following": len(followees)}
        for other in followees:
            followers: Any = found[other]["followers"]
            followers[id_of(number)] = True
            found[other]["followed"] = len(followers)
    named: list[tuple[str, JsonObject]] = [(TIMELINE, {"posts": []})]
    for number, one in enumerate(found):
        named += [(username(f"user-{number}"), {"id": id_of(number)}), (user(id_of(number)), one)]
    return named


async def fill(store: BokiStore, objects: Sequence[tuple[str, JsonObject]]) -> None:
    """Puts objects there, each by a record of its own, as registrations would."""
    left = iter(objects)

    async def some() -> None:
        for name, value in left:
            await store.object(name).send(Set("", value))

    await asyncio.gather(*(some() for _ in range(OUTSTANDING)))


def mixed(peer: Peer, users: int, tasks: int, run: str) -> Callable[[Any], Once]:
    """The mix; `run` is part of the ids of posts."""

    def make(_: Any) -> Once:
        mixes = [OperationMix(SEED + task) for task in range(tasks)]
        numbers = [0] * tasks

        async def once(task: int) -> int:
            mix = mixes[task]
            step = mix.step(users)
            id = id_of(step.user)
            if step.operation == "login":
                assert await peer.login(f"user-{step.user}", PASSWORD) is not None
            elif step.operation == "profile":
                assert await peer.profile(id) is not None
            elif step.operation == "posts":
                await peer.posts(None if step.of_all else id)
            else:
                numbers[task] += 1
                await peer.post(
                    id, f"{run}-{task}-{numbers[task]}", mix.body(), lambda many, n: mix.some(list(many), n)
                )
            return 1

        return once

    return make
