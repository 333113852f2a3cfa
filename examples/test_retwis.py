"""Tests of Retwis: results and records of its operations, the mix, the checks, and a short trial under kill -9.

    .venv/bin/python -m pytest examples/test_retwis.py -m "not processes"       # without the trial

Operations run on a cluster in memory. Each fault that the checks know is tried on an otherwise faultless network.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

from boki.testing import MemoryCluster
from bokistore import BokiStore, StoreSettings
from examples.retwis.app import FAN_OUT, NameTaken, Retwis, new_user
from examples.retwis.checks import DONE, REFUSED, UNKNOWN, NetworkState, NotedCall, check
from examples.retwis.mix import MIX, OperationMix
from examples.retwis.trial import trial


@pytest.fixture
async def retwis() -> AsyncIterator[Retwis]:
    async with MemoryCluster() as cluster:
        store = BokiStore((await cluster.connect()).book("retwis"), settings=StoreSettings(checkpoints=False))
        yield Retwis(store, timeline_posts=3, user_posts=2)


def first(many: Any, count: int) -> list[str]:
    return list(many)[:count]


async def test_operations_return_what_others_wrote(retwis: Retwis) -> None:
    ann, bob, carl = [await retwis.register(name, "secret") for name in ("ann", "bob", "carl")]
    with pytest.raises(NameTaken):
        await retwis.register("ann", "other")
    assert await retwis.login("ann", "secret") == "auth of ann"
    assert (await retwis.login("ann", "wrong"), await retwis.login("dora", "secret")) == (None, None)
    assert [await retwis.follow(bob, ann), await retwis.follow(carl, ann), await retwis.follow(bob, ann)] == [
        True,
        True,
        False,
    ]
    assert not await retwis.follow(bob, "missing")
    profile = await retwis.profile(ann)
    assert profile is not None
    assert (profile["followers"], profile["followed"]) == ({bob: True, carl: True}, 2)
    assert await retwis.post(ann, "p1", "hello", first) == [bob, carl][:FAN_OUT]
    for number in (2, 3, 4):
        await retwis.post(ann, f"p{number}", "again", lambda many, _: [many[0]])
    assert [one["id"] for one in await retwis.posts(None)] == ["p4", "p3", "p2"], "the newest first, at most three"
    assert [one["id"] for one in await retwis.posts(bob)] == ["p4", "p3"]
    assert await retwis.posts(carl) == [{"id": "p1", "author": ann, "body": "hello"}]
    assert await retwis.posts(ann) == []


async def test_appends_by_operation(retwis: Retwis) -> None:
    ann, bob = await retwis.register("ann", "secret"), await retwis.register("bob", "secret")

    async def appends(call: Any) -> int:
        before = retwis.store.log.appends
        await call
        return retwis.store.log.appends - before

    assert await appends(retwis.register("carl", "secret")) == 2, "the next id, then name and user"
    assert await appends(retwis.follow(bob, ann)) == 1
    assert await appends(retwis.follow(bob, ann)) == 0
    assert await appends(retwis.post(ann, "p1", "hello", first)) == 1, (
        "the post, the timelines of followers, the global timeline"
    )
    for call in (retwis.login("ann", "secret"), retwis.profile(ann), retwis.posts(None), retwis.posts(bob)):
        assert await appends(call) == 0


def test_the_mix_is_the_papers() -> None:
    mix = OperationMix(7)
    steps = [mix.step(50) for _ in range(20_000)]
    for operation, percent in MIX.items():
        found = sum(step.operation == operation for step in steps)
        assert abs(found / len(steps) - percent / 100) < 0.02, operation
    assert {step.user for step in steps} == set(range(50))
    assert abs(sum(step.of_all for step in steps) / len(steps) - 0.25) < 0.02
    assert [OperationMix(7).step(50) for _ in range(3)] == [steps[0]] * 3


# -- checks


def network() -> tuple[list[NotedCall], NetworkState]:
    """Return a network of two users, one of which follows the other, and two posts, the second without an answer."""
    ann, bob = new_user("ann", "x"), new_user("bob", "x")
    ann |= {"followers": {"2": True}, "followed": 1}
    bob |= {"followees": {"1": True}, "following": 1, "posts": ["a", "b"]}
    posts = {id: {"id": id, "author": "1", "body": id} for id in ("a", "b")}
    notes = [
        NotedCall("c", 1, "register", {"name": "ann"}, DONE, "1"),
        NotedCall("d", 1, "register", {"name": "bob"}, DONE, "2"),
        NotedCall("d", 2, "follow", {"follower": "2", "followee": "1"}, DONE, True),
        NotedCall("c", 2, "post", posts["a"], DONE, ["2"]),
        NotedCall("c", 3, "post", posts["b"], UNKNOWN),
        NotedCall("d", 3, "post", posts["a"] | {"id": "never"}, UNKNOWN),
        NotedCall("d", 4, "post", posts["a"] | {"id": "no"}, REFUSED),
    ]
    return notes, NetworkState({"ann": {"id": "1"}, "bob": {"id": "2"}}, {"1": ann, "2": bob}, posts, ["a", "b"], 5, 2)


def test_a_faultless_state_has_no_faults() -> None:
    assert check(*network()) == []


def drop(of: dict[str, Any], name: str) -> None:
    del of[name]


@pytest.mark.parametrize(
    ("change", "fault_text"),
    [
        (lambda s: drop(s.names, "ann"), "user ann was registered as 1, but does not exist"),
        (lambda s: drop(s.users, "1"), "do not match"),
        (lambda s: s.names.update(eve={"id": "9"}), "user eve was never registered"),
        (lambda s: drop(s.users["2"]["followees"], "1"), "2 was acknowledged to follow 1, but does not"),
        (lambda s: drop(s.users["1"]["followers"], "2"), "2 follows 1, but is not among its followers"),
        (lambda s: s.users["1"]["followers"].update({"1": True}), "1 is followed by 1, but is not among its followees"),
        (lambda s: s.users["1"].update(followed=2), "user 1 counts (0, 2)"),
        (lambda s: drop(s.posts, "a"), "post a of c was acknowledged, but is lost"),
        (lambda s: s.posts.update(no=s.posts["a"]), "post no of d was refused, but exists"),
        (lambda s: s.posts.update(odd=s.posts["a"]), "post odd was never written"),
        (lambda s: s.posts["b"].update(body="other"), "post b differs from what c wrote"),
        (lambda s: s.timeline.remove("a"), "the global timeline lacks post a of c"),
        (lambda s: s.timeline.remove("b"), "the global timeline lacks post b of c"),
        (lambda s: s.timeline.reverse(), "the global timeline has the posts of c in the wrong order"),
        (lambda s: s.timeline.append("a"), "the global timeline has a post twice"),
        (lambda s: s.timeline.append("never"), "the global timeline has post never, which does not belong there"),
        (lambda s: s.timeline.extend("a" * 9), "the global timeline has 11 posts, more than 5"),
        (lambda s: s.users["2"]["posts"].remove("a"), "the timeline of user 2 lacks post a of c"),
        (lambda s: s.users["1"]["posts"].append("a"), "the timeline of user 1 has post a, which does not belong there"),
    ],
)  # fmt: skip
def test_each_fault_is_found(change: Callable[[NetworkState], object], fault_text: str) -> None:
    notes, state = network()
    state = deepcopy(state)
    change(state)
    found = check(notes, state)
    assert any(fault_text in fault for fault in found), found


def test_a_full_list_drops_from_its_end_only() -> None:
    notes, state = network()
    full = state._replace(timeline=["b"], timeline_posts=1)
    assert check(notes, full) == []
    assert any("lacks post b" in fault for fault in check(notes, full._replace(timeline=["a"])))


@pytest.mark.processes
async def test_a_short_trial(tmp_path: Path) -> None:
    found = await trial(tmp_path, seconds=4, seed=3)
    assert found.faults == []
    assert found.killed.total() >= 1
    for operation in ("register", "post", "posts", "login", "profile"):
        assert found.calls[operation, DONE] > 0, found.calls
