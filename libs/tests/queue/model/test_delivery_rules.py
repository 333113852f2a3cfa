"""The order of deliveries: by examples, and against random stories in which the rules hold at every step."""

from __future__ import annotations

import random

import msgspec
import pytest

from bokilib.records.dedup import DedupWindow
from bokiqueue.model import delivery_rules
from bokiqueue.model.delivery_rules import DeliverySchedule
from bokiqueue.model.events import Id, Item
from bokiqueue.model.limit_rules import KeyRateLimits
from bokiqueue.model.shard_state import ALONE, BY_ITSELF, SINGLY, Progress, decode

BODY = msgspec.Raw(msgspec.msgpack.encode(None))


def item(key: str | None = None, delay_ms: int = 0, dedup: str | None = None, *, priority: int = 0) -> Item:
    return Item(BODY, key, dedup, delay_ms, None, priority)


def shelf(progress: Progress | None = None, *, careful: bool = False, most: int = 0) -> DeliverySchedule:
    return DeliverySchedule("s", progress or Progress(1, DedupWindow(1_000)), attempts_most=most, careful=careful)


def ids(schedule: DeliverySchedule, most: int = 10, now_ms: int = 0) -> list[int]:
    return [delivery.entry.id.seqnum for delivery in schedule.take(most, now_ms).deliveries]


def test_a_key_that_had_one_too_lately_waits_and_others_pass() -> None:
    schedule = DeliverySchedule(
        "s", Progress(1, DedupWindow(1_000)), attempts_most=0, careful=False, keys=KeyRateLimits(10.0, 0)
    )
    for seqnum, key in enumerate(["a", "a", None, "b"], 1):
        schedule.offer(seqnum, 0, (item(key),))
    assert (ids(schedule, now_ms=50), schedule.next_due_ms()) == ([3], 101)
    assert ids(schedule, now_ms=101) == [1, 4]
    schedule.over(Id(1, 0))
    assert (ids(schedule, now_ms=150), schedule.next_due_ms()) == ([], 202)
    assert ids(schedule, now_ms=202) == [2]


def test_a_key_has_one_message_in_flight_and_passes_none() -> None:
    schedule = shelf()
    for seqnum, key in enumerate(["a", "a", None, "b", "a"], 1):
        schedule.offer(seqnum, 0, (item(key),))
    assert ids(schedule) == [1, 3, 4]
    schedule.over(Id(1, 0))
    assert ids(schedule) == [2]
    schedule.again(Id(2, 0), 1, 50)
    assert ids(schedule, now_ms=49) == []
    assert ids(schedule, now_ms=50) == [2]


def test_what_is_passed_over_is_held_and_comes_with_its_number() -> None:
    schedule = shelf()
    schedule.offer(1, 0, (item("a"), item("a"), item()))
    batch = schedule.take(10, 0)
    assert batch.delivered is not None
    assert (batch.delivered.upto, batch.delivered.held, batch.delivered.again) == (Id(1, 2), (Id(1, 1),), ())
    schedule.over(Id(1, 0))
    later = schedule.take(10, 0).delivered
    assert later is not None
    assert later.again == ((1, 1, 1),)


def test_what_somebody_may_have_died_of_is_handed_out_by_itself() -> None:
    progress = Progress(1, DedupWindow(0))
    before = shelf(progress)
    for seqnum in range(1, 6):
        before.offer(seqnum, 0, (item(),))
    assert ids(before, 3) == [1, 2, 3]
    before.over(Id(2, 0))
    after = shelf(decode(progress.encode(), 0), careful=True)
    for seqnum in range(1, 6):
        after.offer(seqnum, 0, (item(),))
    for seqnum in (1, 3):
        batch = after.take(10, 0)
        assert [(delivery.entry.id.seqnum, delivery.attempt) for delivery in batch.deliveries] == [(seqnum, 1)]
        assert batch.delivered is not None and batch.delivered.guarded == ((seqnum, 0, SINGLY),)
        assert batch.logged_first
        assert after.take(10, 0).deliveries == []
        after.over(Id(seqnum, 0))
    batch = after.take(10, 0)
    assert [(delivery.entry.id.seqnum, delivery.attempt) for delivery in batch.deliveries] == [(4, 1), (5, 1)]
    assert batch.logged_first, "the owner before may have handed them out before his DELIVER was in the log"


def test_an_owner_suspects_messages_until_it_has_read_what_was_delivered_before() -> None:
    """If it releases the shard before, the next owner has to suspect them."""
    progress = Progress(1, DedupWindow(0))
    before = shelf(progress)
    for seqnum in (1, 2):
        before.offer(seqnum, 0, (item(),))
    assert ids(before) == [1, 2]
    for careful in (True, False):
        after = shelf(decode(progress.encode(), 0), careful=careful)
        assert after.suspecting == careful, "nothing is read yet"
        after.offer(1, 0, (item(),))
        assert ids(after) == [1]
        after.over(Id(1, 0))
        assert after.suspecting == careful, "of the second message nothing is known"
        after.offer(2, 0, (item(),))
        assert ids(after) == [2]
        after.over(Id(2, 0))
        assert not after.suspecting


def test_a_suspect_that_waits_for_its_key_lets_its_key_go_first() -> None:
    progress = Progress(1, DedupWindow(0))
    progress.upto, progress.held = Id(2, 0), {Id(1, 0)}
    schedule = shelf(progress, careful=True)
    for seqnum in (1, 2, 3):
        schedule.offer(seqnum, 0, (item("k"),))
    assert ids(schedule) == [1]
    schedule.over(Id(1, 0))
    assert ids(schedule) == [2]


def test_what_failed_so_often_is_given_up_and_what_ended_without_a_failure_never_is() -> None:
    schedule = shelf(most=2)
    schedule.offer(1, 0, (item("k"), item("k")))
    for _ in range(4):
        assert [delivery.attempt for delivery in schedule.take(10, 0).deliveries] == [1]
        schedule.expires(Id(1, 0))
    assert ids(schedule) == [1]
    schedule.again(Id(1, 0), 1, 0)
    assert [delivery.attempt for delivery in schedule.take(10, 0).deliveries] == [2]
    schedule.again(Id(1, 0), 2, 0)
    batch = schedule.take(10, 0)
    assert ([delivery.attempt for delivery in batch.dead], batch.deliveries) == ([2], [])
    schedule.over(Id(1, 0))
    assert [delivery.entry.id for delivery in schedule.take(10, 0).deliveries] == [Id(1, 1)]


def died(before: DeliverySchedule, since_ms: int = 0, *, most: int = 0) -> DeliverySchedule:
    """The next owner of a shard, after the process of the one before died. It read the same messages."""
    after = DeliverySchedule(
        "s", decode(before.progress.encode(), 0), attempts_most=most, careful=True, since_ms=since_ms
    )
    for entry in before.entries.values():
        after.offer_some(entry.id.seqnum, 0, [(entry.id.number, entry.item)])
    return after


def test_what_kills_its_process_is_found_counted_alone_and_given_up() -> None:
    owner = shelf(most=2)
    for seqnum in (1, 2, 3):
        owner.offer(seqnum, 0, (item(),))
    assert ids(owner, 2) == [1, 2]
    owner = died(owner, most=2)
    assert ids(owner) == [1], "one at a time"
    owner = died(owner, most=2)
    assert ids(owner) == [2] and owner.wants_alone(0), "the first waits until the member has nothing else"
    owner.over(Id(2, 0))
    (delivery,) = owner.take_alone(0).deliveries
    assert (delivery.entry.id, delivery.attempt, owner.progress.guarded) == (Id(1, 0), 1, {Id(1, 0): ALONE})
    owner = died(owner, 5_000, most=2)
    assert ids(owner, now_ms=5_999) == [3] and not owner.wants_alone(5_999), "it waits, and others go on"
    owner.over(Id(3, 0))
    (delivery,) = owner.take_alone(6_000).deliveries
    assert delivery.attempt == 2
    owner = died(owner, 10_000, most=2)
    batch = owner.take_alone(12_000)
    assert (batch.deliveries, [(one.entry.id, one.attempt) for one in batch.dead]) == ([], [(Id(1, 0), 2)])


def test_what_was_beside_a_message_that_kills_is_never_counted() -> None:
    owner = shelf(most=1)
    owner.offer(1, 0, (item(), item(), item()))
    for _ in range(20):
        owner.take(10, 0)
        owner = died(owner, most=1)
    assert [delivery.attempt for delivery in owner.take_alone(0).deliveries] == [1]


def hand_by_itself(owner: DeliverySchedule, now_ms: int = 0) -> int:
    """Hand out the only message there is, alone if it must be; return its attempt."""
    batch = owner.take_alone(now_ms) if owner.wants_alone(now_ms) else owner.take(10, now_ms)
    (delivery,) = batch.deliveries
    assert batch.delivered is not None
    owner.by_itself(batch.delivered)
    return delivery.attempt


def test_a_message_that_was_by_itself_counts_each_death_from_the_first() -> None:
    owner = shelf(most=3)
    owner.offer(1, 0, (item(),))
    attempts = []
    for now_ms in (0, 10_000, 20_000):
        attempts.append(hand_by_itself(owner, now_ms + 5_000))
        owner = died(owner, now_ms + 10_000, most=3)
    assert attempts == [1, 2, 3]
    batch = owner.take_alone(60_000)
    assert (batch.deliveries, [one.attempt for one in batch.dead]) == ([], [3])


def test_a_message_that_was_by_itself_by_chance_is_not_given_up_for_that() -> None:
    """Another handler may have begun beside it, and ended the process before the log had that."""
    owner = shelf(most=1)
    owner.offer(1, 0, (item(),))
    assert hand_by_itself(owner) == 1
    owner = died(owner, most=1)
    (delivery,) = owner.take_alone(0).deliveries
    assert (delivery.attempt, owner.progress.guarded) == (1, {Id(1, 0): ALONE})
    assert len(died(owner, most=1).take_alone(60_000).dead) == 1


def test_a_message_is_by_itself_until_another_is_handed_out() -> None:
    owner = shelf(most=3)
    owner.offer(1, 0, (item(),))
    assert hand_by_itself(owner) == 1
    assert owner.progress.guarded == {Id(1, 0): BY_ITSELF}
    owner.offer(2, 0, (item(),))
    assert ids(owner) == [2]
    delivered = owner.accompanied()
    assert delivered is not None and (delivered.upto, delivered.again) == (Id(2, 0), ((1, 0, 1),))
    assert owner.progress.guarded == {} and owner.accompanied() is None
    after = died(owner, most=3)
    assert [delivery.attempt for delivery in after.take(10, 0).deliveries] == [1], (
        "others were in flight: no attempt failed"
    )


def test_a_message_whose_decision_is_on_its_way_is_left_as_it_is() -> None:
    owner = shelf()
    owner.offer(1, 0, (item(), item()))
    batch = owner.take(1, 0)
    assert batch.delivered is not None
    owner.by_itself(batch.delivered)
    owner.pin(Id(1, 0))
    assert ids(owner) == [1]
    assert owner.accompanied() is None, "the log may have its ACK before this"
    owner.unpin(Id(1, 0))
    assert owner.accompanied() is not None


def test_a_culprit_that_cannot_be_alone_comes_again_a_minute_later() -> None:
    owner = shelf()
    owner.offer(1, 0, (item(),))
    owner.take(1, 0)
    owner = died(owner)
    owner.take(1, 0)
    owner = died(owner)
    assert owner.wants_alone(0)
    owner.postpone_alone(0)
    assert not owner.wants_alone(59_999) and owner.next_due_ms() == 60_000 and owner.wants_alone(60_000)


def test_a_suspect_behind_a_culprit_of_its_key_keeps_out_no_others() -> None:
    owner = shelf()
    owner.offer(1, 0, (item("k"),))
    owner.take(1, 0)
    owner = died(owner)
    owner.take(1, 0)
    owner.progress.upto, owner.progress.guarded = Id(2, 0), {Id(1, 0): ALONE}
    owner = died(owner, 0)
    owner.offer(2, 0, (item("k"),))
    owner.offer(3, 0, (item(),))
    assert ids(owner) == [3]


def test_more_than_is_read_ahead_waits_for_a_key_and_another_key_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    owner = DeliverySchedule(
        "s", Progress(1, DedupWindow(0)), attempts_most=0, careful=False, keys=KeyRateLimits(1.0, 0)
    )
    for seqnum in range(1, 40):
        owner.offer(seqnum, 0, (item("noisy"),))
    assert not owner.full(8), "what waits for its key does not keep others out"
    owner.offer(40, 0, (item("quiet"),))
    assert ids(owner, now_ms=2_000) == [1, 40]
    for seqnum in range(41, 49):
        owner.offer(seqnum, 0, (item(),))
    assert owner.full(8)
    monkeypatch.setattr(delivery_rules, "WAITING", 50)
    for seqnum in range(49, 52):
        owner.offer(seqnum, 0, (item("noisy"),))
    assert owner.full(20), "there is a bound"


def test_a_lease_runs_while_a_handler_has_it_not_while_its_decision_is_on_its_way() -> None:
    schedule = shelf()
    schedule.offer(1, 0, (item(), item()))
    assert ids(schedule) == [1, 1]
    assert schedule.not_begun() == [Id(1, 0), Id(1, 1)]
    schedule.begin(Id(1, 0), 5.0)
    schedule.begin(Id(1, 1), 4.0)
    assert schedule.next_deadline_s() == 4.0
    schedule.pin(Id(1, 1))
    assert schedule.number(Id(1, 1)) is None
    assert (schedule.next_deadline_s(), schedule.expired(9.0)) == (5.0, [Id(1, 0)])
    schedule.unpin(Id(1, 1))
    assert schedule.expired(9.0) == [Id(1, 0), Id(1, 1)]


def test_copies_are_recognised_once_also_by_a_later_owner() -> None:
    first = shelf()
    for seqnum, time_ms in ((1, 0), (2, 900), (3, 1_500), (4, 1_600)):
        first.offer(seqnum, time_ms, (item(dedup="e"),))
    assert sorted(first.entries) == [Id(1, 0), Id(3, 0)]
    again = shelf(decode(first.progress.encode(), 1_000))
    for seqnum, time_ms in ((1, 0), (2, 900), (3, 1_500), (4, 1_600), (5, 1_700)):
        again.offer(seqnum, time_ms, (item(dedup="e"),))
    assert sorted(again.entries) == [Id(1, 0), Id(3, 0)]


def test_each_message_is_handed_out_until_it_is_over_and_keys_keep_their_order() -> None:
    for seed in range(150):
        chances = random.Random(seed)
        schedule, done, pushed = shelf(), list[Id](), 0
        keys = {}
        for step in range(80):
            what = chances.randrange(5)
            if what == 0 and pushed < 12:
                pushed += 1
                keys[pushed] = chances.choice([None, "a", "b"])
                schedule.offer(
                    pushed, 0, (item(keys[pushed], chances.choice([0, 0, 30]) if keys[pushed] is None else 0),)
                )
            elif what == 1:
                schedule.take(chances.randrange(1, 4), step)
            elif schedule.flights:
                id = chances.choice(sorted(schedule.flights))
                if what == 2:
                    schedule.over(id)
                    done.append(id)
                elif what == 3:
                    schedule.again(id, 1, chances.choice([0, step + 5]))
                else:
                    schedule.expires(id)
            flying = [keys[id.seqnum] for id in schedule.flights if keys[id.seqnum]]
            assert len(flying) == len(set(flying))
        for now_ms in range(100, 400):
            for delivery in schedule.take(5, now_ms).deliveries:
                schedule.over(delivery.entry.id)
                done.append(delivery.entry.id)
            for id in sorted(schedule.flights):
                schedule.over(id)
                done.append(id)
        assert sorted(done) == [Id(number, 0) for number in range(1, pushed + 1)], seed
        for key in ("a", "b"):
            order = [id.seqnum for id in done if keys[id.seqnum] == key]
            assert order == sorted(order)
        schedule.raise_floor()
        assert schedule.progress.floor == Id(pushed + 1, 0) or not pushed


def test_the_higher_priority_comes_first_and_one_of_eight_is_the_oldest() -> None:
    schedule = shelf()
    for seqnum in range(1, 21):
        schedule.offer(seqnum, 0, (item(priority=0 if seqnum <= 10 else 1),))
    assert ids(schedule, 9) == [11, 12, 13, 14, 15, 16, 17, 1, 18]


def test_a_key_keeps_its_order_and_its_first_has_the_highest_priority_of_it() -> None:
    schedule = shelf()
    for seqnum, (key, priority) in enumerate([(None, 1), ("k", 0), (None, 0), ("k", 5), ("k", 0)], 1):
        schedule.offer(seqnum, 0, (item(key, priority=priority),))
    assert ids(schedule, 1) == [2], "the message of priority 5 waits for it"
    schedule.over(Id(2, 0))
    assert ids(schedule, 1) == [4]
    schedule.over(Id(4, 0))
    assert ids(schedule) == [1, 3, 5]


def test_what_was_passed_by_a_higher_priority_is_held_over_a_takeover() -> None:
    progress = Progress(1, DedupWindow(0))
    before = shelf(progress)
    for seqnum in range(1, 4):
        before.offer(seqnum, 0, (item(priority=seqnum),))
    assert ids(before, 1) == [3]
    before.over(Id(3, 0))
    after = shelf(decode(progress.encode(), 0))
    for seqnum in range(1, 4):
        after.offer(seqnum, 0, (item(priority=seqnum),))
    assert [(delivery.entry.id.seqnum, delivery.attempt) for delivery in after.take(10, 0).deliveries] == [
        (2, 1),
        (1, 1),
    ]


def test_what_comes_later_and_what_is_given_back_has_its_priority_then() -> None:
    schedule = shelf()
    for seqnum, delay_ms, priority in ((1, 0, 0), (2, 50, 9), (3, 0, 4)):
        schedule.offer(seqnum, 0, (item(delay_ms=delay_ms, priority=priority),))
    assert ids(schedule, 1) == [3]
    schedule.again(Id(3, 0), 1, 0)
    assert ids(schedule, 2, now_ms=50) == [2, 3]


def test_what_is_lined_up_twice_is_handed_out_once() -> None:
    schedule = shelf()
    for seqnum in (1, 2, 3):
        schedule.offer(seqnum, 0, (item("k"),))
    schedule.purge(2)
    schedule.purge(2)
    assert ids(schedule) == [2]


@pytest.mark.parametrize("how", ["failed", "expired"])
def test_what_was_purged_while_a_handler_had_it_is_not_redelivered(how: str) -> None:
    schedule = shelf()
    for seqnum in (1, 2, 3):
        schedule.offer(seqnum, 0, (item("k"),))
    assert ids(schedule) == [1]
    schedule.purge(3)
    if how == "failed":
        schedule.again(Id(1, 0), 1, 1_000)
    else:
        schedule.expires(Id(1, 0))
    assert ids(schedule, now_ms=1_000) == [3]
    schedule.over(Id(3, 0))
    schedule.raise_floor()
    assert (schedule.progress.floor, schedule.progress.due, schedule.progress.attempts) == (Id(4, 0), {}, {})


def test_no_purge_changes_which_messages_are_copies() -> None:
    """A purge of what was read and what was not, by this owner or one that begins from an earlier checkpoint."""
    for seed in range(300):
        chances = random.Random(seed)
        times = sorted(chances.randrange(3_000) for _ in range(12))
        dedups = [chances.choice(("x", "y", None)) for _ in times]
        window = DedupWindow(1_000)
        firsts = [
            seqnum
            for seqnum, (dedup, time_ms) in enumerate(zip(dedups, times, strict=True), 1)
            if dedup is None or not window.twice(dedup, time_ms)
        ]
        start, kept = 1, Progress(1, DedupWindow(1_000)).encode()
        schedule = shelf()
        while schedule.reached < len(times):
            seqnum = schedule.reached + 1
            schedule.offer(seqnum, times[seqnum - 1], (item(dedup=dedups[seqnum - 1]),))
            drawn = chances.random()
            if drawn < 0.2:
                start = max(start, chances.randrange(1, len(times)))
                schedule.purge(start)
            elif drawn < 0.4:
                schedule.raise_floor()
                kept = schedule.progress.encode()
            elif drawn < 0.5:
                progress = decode(kept, 1_000)
                progress.begin_at(start)
                schedule = shelf(progress)
        assert [id.seqnum for id in schedule.entries] == [one for one in firsts if one >= start], seed


def test_an_id_behind_an_unopened_record_that_is_purged_with_it_is_known() -> None:
    schedule = shelf()
    schedule.passes(1)
    schedule.offer(2, 0, (item(dedup="x"), item("k"), item()))
    schedule.offer(3, 0, (item(dedup="y"), item("k")))
    assert ids(schedule) == [2], "the rest waits for what may be before it"
    schedule.purge(3)
    schedule.offer(4, 0, (item(dedup="x"), item(dedup="z")))
    assert [delivery.entry.id for delivery in schedule.take(10, 0).deliveries] == [Id(3, 0), Id(3, 1), Id(4, 1)]
    assert schedule.progress.read == 4


def test_an_unopened_record_that_was_purged_before_it_was_read_keeps_nothing_back() -> None:
    schedule = shelf()
    schedule.purge(3)
    schedule.passes(1)
    schedule.offer(2, 0, (item(dedup="x"),))
    schedule.offer(3, 0, (item(dedup="x"), item(dedup="y")))
    assert (schedule.unopened, [*schedule.entries]) == ([], [Id(3, 1)])


def test_a_key_whose_rate_changes_is_looked_at_again() -> None:
    keys = KeyRateLimits(0.0, 0, {"k": 0.001})
    schedule = DeliverySchedule("s", Progress(1, DedupWindow(0)), attempts_most=0, careful=False, keys=keys)
    schedule.offer(1, 0, (item("k"),))
    assert ids(schedule, now_ms=5_000) == []
    schedule.rates({}, 0.0)
    assert ids(schedule, now_ms=5_000) == [1]
