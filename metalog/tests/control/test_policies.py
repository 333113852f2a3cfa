"""What the leader does each round, policy by policy; spares are never deleted under a driver that stalled."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from boki_common.errors import NoSequencer
from boki_common.metadata.membership import MEMBERS, member_path
from boki_common.metadata.store import ensure_path
from boki_ledger.metadata.member_trust import REMEMBERED
from boki_metalog.control.controller_rules import WEIGHTS_PATH, encode_weights
from boki_metalog.control.log_changes import LogChanges, ensure_logs
from boki_metalog.control.policies import (
    DATA,
    Balance,
    Cluster,
    GiveUpSpares,
    KeepTerms,
    Policy,
    RollWritten,
    WatchEngines,
)
from boki_metalog.errors import MetalogUnreadable, SpareTaken, ThinlyServed
from boki_metalog.sequencer.sequencer_watch import SequencerWatch
from boki_metalog.sequencer.spare_offer import INCARNATION, METALOG, ROLE
from boki_metalog.settings import ControllerSettings, SequencerSettings
from boki_metalog.terms.index_slots import ENGINE_ROLE
from boki_metalog.terms.metadata_tree import ensure_view, read_view
from boki_metalog.terms.term_change import change_term
from boki_metalog.terms.term_plan import Candidate

DEAD = "dd" * 16
LISTED = "11" * 16


async def led(cluster: Any, **settings: float) -> Cluster:
    chosen: dict[str, Any] = {"vacant_grace_s": 0.0, "absent_s": 0.0, "spare_scan_s": 0.01} | settings
    store = await cluster.store()
    made = Cluster(
        metadata=store,
        ledgers=cluster.ledgers,
        settings=ControllerSettings(**chosen),
        changes=LogChanges(store, cluster.ledgers, cluster.rng, retry_for_s=0.05, retry_first_s=0.005),
        watch=SequencerWatch(store, SequencerSettings(standby_check_s=0.02), on_change=lambda: None),
    )
    made.terms_led += 1
    cluster._closing.append(made.watch.close)
    return made


async def thrice(policy: Policy, given: Cluster) -> None:
    for _ in range(3):
        await policy.run(given)


async def spare_of_the_dead(cluster: Any) -> int:
    await ensure_view(await cluster.store())
    writer = await cluster.ledgers.create(custom={ROLE: METALOG, INCARNATION: DEAD.encode()})
    return int(writer.ledger_id)


async def install(cluster: Any, suspect: int, sequencer: str, spare: int | None = None) -> None:
    """A driver gives log 0 to a sequencer, whose spare is new unless it is given."""
    ledger_id = (await cluster.ledgers.create()).ledger_id if spare is None else spare
    await change_term(
        metadata=await cluster.store(),
        ledgers=cluster.ledgers,
        rng=cluster.rng,
        log=0,
        suspect=suspect,
        candidate=Candidate(sequencer, ledger_id),
    )


async def test_a_log_that_the_standbys_leave_alone_gets_one(cluster: Any) -> None:
    first = await cluster.serving()
    standby = await cluster.sequencer(log=0)
    policy, given = KeepTerms(), await led(cluster)
    await policy.run(given)
    assert (await cluster.view()).term_of(0) == 1
    await first._process._server.close()  # still listed, and it does not know
    await first._spare.membership.leave()
    while (await cluster.view()).term_of(0) == 1:
        await policy.run(given)
        await asyncio.sleep(0)
    assert await standby.serving() == 2


async def test_without_a_standby_it_is_reported(cluster: Any) -> None:
    await ensure_view(await cluster.store())
    given = await led(cluster)
    with pytest.raises(NoSequencer, match="log 0"):
        await KeepTerms().run(given)


async def test_a_log_that_can_have_no_next_term_keeps_no_other_from_one(cluster: Any) -> None:
    await ensure_logs(await cluster.store(), 2)
    given, asked = await led(cluster), []

    class Changes:
        async def roll(self, log: int, *, suspect: int) -> None:
            asked.append((log, suspect))
            if log == 0:
                raise MetalogUnreadable("its last entry cannot be read")

    given.changes = Changes()  # type: ignore[assignment]  # nothing else of it is used
    with pytest.raises(MetalogUnreadable):
        await KeepTerms().run(given)
    assert asked == [(0, 0), (1, 0)]


async def test_what_is_written_on_lost_bookies_makes_its_log_roll_once(cluster: Any) -> None:
    await cluster.serving()
    await cluster.sequencer()
    term, metalog = (await cluster.view()).term_of(0), (await cluster.view()).installed(0).metalog_ledger
    written: list[int] = []
    policy, given = RollWritten(lambda: written), await led(cluster, repair_roll_s=0.0)
    await policy.run(given)
    foreign = (await cluster.ledgers.create()).ledger_id
    written += [foreign, 999]
    await policy.run(given)
    assert (await cluster.view()).term_of(0) == term, "neither a metalog nor a data ledger, nor there"
    written.append(metalog)
    await until_rolled(cluster, policy, given, above=term)
    after = (await cluster.view()).term_of(0)
    await thrice(policy, given)
    assert (await cluster.view()).term_of(0) == after, "once, though it stays open"
    written.append((await cluster.ledgers.create(custom={ROLE: DATA})).ledger_id)
    await until_rolled(cluster, policy, given, above=after)


async def until_rolled(cluster: Any, policy: Policy, given: Cluster, *, above: int) -> None:
    """Until the log has a higher term: a standby has no spare at once."""
    while (await cluster.view()).term_of(0) <= above:
        try:
            await policy.run(given)
        except (NoSequencer, SpareTaken):
            await asyncio.sleep(0)


async def test_what_is_written_for_a_moment_only_rolls_nothing(cluster: Any) -> None:
    await cluster.serving()
    term, metalog = (await cluster.view()).term_of(0), (await cluster.view()).installed(0).metalog_ledger
    policy, given = RollWritten(lambda: [metalog]), await led(cluster, repair_roll_s=3_600.0)
    await thrice(policy, given)
    assert (await cluster.view()).term_of(0) == term


async def test_slots_follow_the_weights(cluster: Any) -> None:
    sequencers = [await cluster.sequencer() for _ in range(2)]
    given = await led(cluster)
    await cluster.until(lambda: any(one.term for one in sequencers))
    await given.changes.add(1)
    await Balance().run(given)
    assert (await cluster.view()).slots_of(1) == (), "nobody asked for it"
    await given.metadata.create(WEIGHTS_PATH, encode_weights({0: 3}))
    while not (await cluster.view()).slots_of(1):
        try:
            await Balance().run(given)
        except (NoSequencer, SpareTaken):
            await asyncio.sleep(0)  # their next spares are on the way
    view = await cluster.view()
    assert view.per_slot.count(1) == 256
    await Balance().run(given)
    assert await cluster.view() == view


async def test_a_spare_of_the_dead_is_closed_then_deleted_after_a_write_of_the_view(cluster: Any) -> None:
    spare = await spare_of_the_dead(cluster)
    await cluster.serving()
    policy, given = GiveUpSpares(), await led(cluster)
    await thrice(policy, given)
    assert cluster.ledgers.ledgers[spare].closed, "given up"
    kept = dict(cluster.ledgers.ledgers)
    await cluster.replace()
    await policy.run(given)
    assert spare not in cluster.ledgers.ledgers and set(kept) - set(cluster.ledgers.ledgers) == {spare}


async def test_spares_of_the_living_and_of_strangers_stay(cluster: Any) -> None:
    await cluster.serving()
    stranger = (await cluster.ledgers.create(custom={ROLE: METALOG})).ledger_id
    await cluster.until(lambda: len(cluster.ledgers.ledgers) == 3)
    policy, given = GiveUpSpares(), await led(cluster)
    for _ in range(5):
        await policy.run(given)
    assert not any(ledger.closed for ledger in cluster.ledgers.ledgers.values())
    assert stranger in cluster.ledgers.ledgers


async def test_a_driver_that_stalled_with_a_spare_of_the_dead_wins_or_is_refused(cluster: Any) -> None:
    """Its swap is tried at each of its steps while the leader gives the spare up: no term ever has a ledger that is gone."""
    for rounds in range(5):
        spare = await spare_of_the_dead(cluster)
        policy, given = GiveUpSpares(), await led(cluster)
        view = (await read_view(given.metadata)).view
        for _ in range(rounds):
            await policy.run(given)
        try:
            await install(cluster, view.term_of(0), DEAD, spare)
        except SpareTaken:
            assert rounds > 0
        await thrice(policy, given)
        installed = (await cluster.view()).installed(0)
        if installed is not None:
            assert installed.metalog_ledger in cluster.ledgers.ledgers


async def test_a_term_that_came_between_look_and_close_keeps_its_ledger(cluster: Any) -> None:
    """The swap of a stalled driver lands after the leader saw the spare open, and is replaced before it looks again."""
    spare = await spare_of_the_dead(cluster)
    policy, given = GiveUpSpares(), await led(cluster)
    original = cluster.ledgers.step

    async def late(operation: str) -> None:
        await original(operation)
        if operation == "recover":
            cluster.ledgers.step = original
            await install(cluster, 0, DEAD, spare)
            await install(cluster, 1, "ee" * 16)

    cluster.ledgers.step = late
    await thrice(policy, given)
    await install(cluster, 2, "ff" * 16)
    await thrice(policy, given)
    assert spare in cluster.ledgers.ledgers, "term 1 was recorded with it"


async def data_ledger(
    cluster: Any, maker: str, *, entries: int = 0, closed: bool = False, cookies: bytes | None = None
) -> Any:
    custom = {ROLE: DATA, INCARNATION: maker.encode()} | ({} if cookies is None else {REMEMBERED: cookies})
    writer = await cluster.ledgers.create(custom=custom)
    for _ in range(entries):
        writer.submit(b"records")
    if closed:
        await writer.close()
    return cluster.ledgers.ledgers[writer.ledger_id]


async def test_data_ledgers_of_dead_engines_that_never_had_an_entry_are_deleted(cluster: Any) -> None:
    await ensure_view(await cluster.store())
    gone = [await data_ledger(cluster, DEAD), await data_ledger(cluster, DEAD, closed=True)]
    kept = [
        await data_ledger(cluster, DEAD, entries=1),
        await data_ledger(cluster, DEAD, entries=1, closed=True),
        await data_ledger(cluster, LISTED),
        await data_ledger(cluster, DEAD, cookies=b"7 apache:3181"),
    ]
    policy, given = GiveUpSpares(), await led(cluster)
    await ensure_path(given.metadata, f"{MEMBERS}/{ENGINE_ROLE}")
    await given.metadata.create(member_path(ENGINE_ROLE, LISTED), b"{}")
    await thrice(policy, given)
    assert list(cluster.ledgers.ledgers.values()) == kept
    assert all(ledger.closed_by_writer or not ledger.fenced for ledger in kept), "what has entries is left alone"
    assert not any(ledger.ledger_id in cluster.ledgers.ledgers for ledger in gone)


async def test_a_first_entry_that_comes_meanwhile_keeps_its_ledger(cluster: Any) -> None:
    await ensure_view(await cluster.store())
    ledger = await data_ledger(cluster, DEAD)
    original = cluster.ledgers.step

    async def late(operation: str) -> None:
        await original(operation)
        if operation == "recover" and not ledger.entries:
            ledger.submit(b"records")
            cluster.ledgers.ack(ledger.ledger_id)

    cluster.ledgers.step = late
    policy, given = GiveUpSpares(), await led(cluster)
    await thrice(policy, given)
    assert ledger.closed and cluster.ledgers.ledgers == {ledger.ledger_id: ledger}


async def test_after_a_lost_session_nobody_is_absent_at_first(cluster: Any) -> None:
    spare = await spare_of_the_dead(cluster)
    policy, given = GiveUpSpares(), await led(cluster, absent_s=0.0)
    given.watch._session_lost()
    given.settings = ControllerSettings(absent_s=30.0, spare_scan_s=0.01)
    await thrice(policy, given)
    assert not cluster.ledgers.ledgers[spare].closed


async def test_slots_without_two_engines_are_reported(cluster: Any) -> None:
    policy, given = WatchEngines(), await led(cluster)
    await policy.run(given)
    await ensure_path(given.metadata, f"{MEMBERS}/{ENGINE_ROLE}")

    async def engine(incarnation: str, slots: str) -> None:
        value = msgspec.json.encode({"addresses": [f"{incarnation}:1"], "index_slots": slots})
        await given.metadata.create(member_path(ENGINE_ROLE, incarnation), value)

    await engine("a", "0-511")
    with pytest.raises(ThinlyServed, match="no engine indexes slots 512-1023"):
        await policy.run(given)
    await engine("b", "all")
    with pytest.raises(ThinlyServed, match=r"only one engine indexes slots 512-1023.*2 engines"):
        await policy.run(given)
    await engine("c", "512-1023")
    await policy.run(given)
