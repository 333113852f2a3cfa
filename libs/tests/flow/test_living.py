"""Workers seen by their heartbeats, and the words for workflows that no living worker runs."""

from __future__ import annotations

import pytest

from boki.testing import MemoryCluster
from bokiflow.history.instance_state import InstanceState
from bokiflow.model.flow_events import Claimed, Ended
from bokiflow.model.outcomes import Outcome
from bokiflow_tools.living import SILENT_MS, Living, living
from bokilib.records import tags
from libs.tests.flow.conftest import until, working
from libs.tests.flow.shop import Shop

NOW_MS = 10_000_000
ENDED = Ended("x", 1, "n", "d", Outcome(1), 0)


@pytest.mark.parametrize(
    ("ages_ms", "held", "words"),
    [
        ({}, InstanceState(1, "w"), "no worker of this app was seen"),
        ({"w": SILENT_MS}, InstanceState(1, "w"), "no worker of this app is alive: w was seen last, 60.0 s ago"),
        ({"w": SILENT_MS - 1}, InstanceState(1, "w"), ""),
        ({"v": 0, "w": SILENT_MS}, InstanceState(1, "w"), "its worker w was seen last, 60.0 s ago: another"),
        ({"v": 0}, InstanceState(1, "w"), "its worker w was not seen"),
        ({"v": 0}, InstanceState(1), ""),
        ({}, InstanceState(1, ended=ENDED), ""),
    ],
)
def test_what_no_living_worker_runs_says_so(ages_ms: dict[str, int], held: InstanceState, words: str) -> None:
    seen = Living({name: NOW_MS - age_ms for name, age_ms in ages_ms.items()}, NOW_MS)
    assert seen.text(held).startswith(words) and bool(seen.text(held)) is bool(words)
    assert bool(seen.last_text) is bool(ages_ms)
    assert bool(seen.alone) == ("v" not in ages_ms and ages_ms.get("w") != SILENT_MS - 1)


def test_a_worker_that_left_is_not_alive_though_it_was_seen_just_now() -> None:
    alone = Living({"w": NOW_MS - 1_000}, NOW_MS, left=frozenset("w"))
    assert alone.alone == "no worker of this app is alive: w was seen last, 1.0 s ago, and has left"
    beside = Living({"v": NOW_MS - 2_000, "w": NOW_MS - 1_000}, NOW_MS, left=frozenset("w"))
    assert beside.alone == "" and beside.text(InstanceState(1, "w")).endswith(
        "and has left: another worker takes it over"
    )
    assert beside.text(InstanceState(1, "v")) == ""


async def test_a_worker_that_was_drained_is_not_alive(cluster: MemoryCluster) -> None:
    async with working(cluster, Shop().app) as worker:
        await until(lambda: worker.name in worker._peers._members.alive())
        assert (await living(worker.log, "shop")).alone == ""
        await worker.drain()
        assert (await living(worker.log, "shop")).alone.endswith("and has left")


def test_programs_get_the_worker_that_was_seen_last() -> None:
    seen = Living({"v": NOW_MS - 7, "w": NOW_MS - SILENT_MS}, NOW_MS)
    last = {"worker": "v", "unseen_ms": 7}
    assert seen.facts(InstanceState(1, "w")) == {
        "has_code": None,
        "unseen_ms": SILENT_MS,
        "last_seen": last,
        "held_back_until_ms": None,
    }
    assert seen.facts(InstanceState(1))["unseen_ms"] is None
    none = {"has_code": None, "unseen_ms": None, "last_seen": None, "held_back_until_ms": None}
    assert Living({}, NOW_MS).facts(InstanceState(1, "w")) == none


@pytest.mark.parametrize(
    ("seen_ms", "owner", "owned_ms", "pause_ms", "held_back"),
    [
        (-30_000, "v", -10_000, 25_000, True),
        (-30_000, "v", -10_000, 19_999, False),  # its pause has passed
        (-30_000, "v", -10_000, 0, False),
        (-9_000, "v", -10_000, 25_000, False),  # its worker lives on without the partition
        (-30_000, "w", -10_000, 25_000, False),  # no other worker has taken over
        (-30_000, "", -10_000, 25_000, False),
        (-30_000, "v", -20_001, 25_000, False),  # its worker claimed it beyond its own partitions
    ],
)
def test_held_back_is_what_another_worker_has_not_claimed(
    seen_ms: int, owner: str, owned_ms: int, pause_ms: int, held_back: bool
) -> None:
    owners = {tags.partition_of("x"): (owner, NOW_MS + owned_ms)}
    seen = Living({"v": NOW_MS, "w": NOW_MS + seen_ms}, NOW_MS, owners)
    held = InstanceState(1, "w", newest=Claimed("x", "w", vain=2, pause_ms=pause_ms), time_ms=NOW_MS - 20_000)
    assert seen.held_back_until_ms(held) == (NOW_MS - 20_000 + pause_ms if held_back else 0)
    assert ("3 times in a row" in seen.text(held)) is held_back


@pytest.mark.parametrize(
    ("code", "has_code"),
    [
        ({"v": {"ship"}, "w": {"pay"}}, True),
        ({"v": {"ship"}}, None),  # w is of an older version, or has too many to name
        ({"v": {"pay"}}, True),
        ({"v": {"ship"}, "w": set()}, False),
        ({"v": {"ship"}, "w": {"ship"}, "left": {"pay"}, "silent": {"pay"}}, False),
    ],
)
def test_code_that_no_living_worker_has_is_named(code: dict[str, set[str]], has_code: bool | None) -> None:
    names = {worker: frozenset(found) for worker, found in code.items()}
    ages_ms = {"v": 0, "w": SILENT_MS - 1, "left": 0, "silent": SILENT_MS}
    seen_at = {name: NOW_MS - age_ms for name, age_ms in ages_ms.items()}
    seen = Living(seen_at, NOW_MS, left=frozenset(["left"]), code=names)
    for owner in ("", "v", "silent"):
        text = seen.text(InstanceState(1, owner), "pay")
        assert (text == "no living worker runs code named 'pay'") is (has_code is False)
        assert seen.facts(InstanceState(1, owner), "pay")["has_code"] is has_code
    assert seen.text(InstanceState(1, ended=ENDED), "pay") == ""
    assert seen.has_code("boki.schedule") is seen.has_code("") is None
    assert Living({}, NOW_MS, code=names).has_code("pay") is None


async def test_workers_are_seen_by_their_heartbeats(cluster: MemoryCluster) -> None:
    shop = Shop()
    async with working(cluster, shop.app) as worker:
        await until(lambda: worker.name in worker._peers._members.alive())
        found = await living(worker.log, "shop")
        assert found.code == {worker.name: frozenset(shop.app.names)} and found.has_code("steps")
        assert "no living worker runs code" in found.text(InstanceState(1, worker.name), "stpes")
        assert list(found.seen) == [worker.name] and found.text(InstanceState(1, worker.name)) == ""
        assert (await living(worker.log, "other")).seen == {}
