"""A queue's settings in the log: read, made, changed. One record has all of them, and the newest counts.

Whoever changes them expects the newest that he read; who was faster is read, and the change is made to that. What depends on settings
(a checkpoint that trims) expects their stream too.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

import msgspec

from boki_common.errors import Conflict, InvalidArgument, Trimmed
from bokilib import tags
from bokilib.contribution import Contribution
from bokilib.log import Log
from bokiqueue.errors import NoSuchGroup, NoSuchQueue
from bokiqueue.events import PICKER, Config, Limits
from bokiqueue.items import check_name
from bokiqueue.limit_rules import KEY_RATES, check_key_rate, check_limits
from bokiqueue.sharding import check_shards

MAX_DELIVERIES: Final = 5
"""Of a queue with dead letters. Without them there is no limit: what was acknowledged is not dropped."""
DROPPED: Final = 256
"""Records that a queue's settings name."""


class Found(NamedTuple):
    """Settings, and where they stand."""

    config: Config
    seqnum: int


async def find(log: Log, queue: str, at_most: int | None = None) -> Found | None:
    """The newest settings, as of now or of a snapshot; None: there is no such queue. Raises Trimmed: there are newer ones."""
    found = await newest(log, queue, at_most)
    return None if found is None or found.config.deleted else found


async def newest(log: Log, queue: str, at_most: int | None = None) -> Found | None:
    """As `find`, also of a queue that is deleted."""
    place = at_most if at_most is not None else await log.book.now(consistency="linearizable")
    while True:
        try:
            record = await log.book.read_prev(tags.queue_config(queue), at_most=place)
        except Trimmed:  # newer ones were made since, and these trimmed
            if at_most is not None:
                raise
            place = await log.book.now(consistency="linearizable")
            continue
        if record is None:
            return None
        for event in PICKER.of(record.seqnum, await log.open(record), about=queue):
            if isinstance(event, Config):
                return Found(event, record.seqnum)
        place = record.seqnum - 1


async def existing(log: Log, queue: str) -> Found:
    """The newest settings. Raises NoSuchQueue."""
    found = await find(log, queue)
    if found is None:
        raise no_such_queue(queue)
    return found


async def change(log: Log, queue: str, alter: Callable[[Config | None], Config]) -> Found:
    """Changes the settings, once nobody is faster; appends nothing if they are so already.

    Args:
        alter: makes the new settings of the newest ones, None for none. It may run several times.
    """
    return await change_at(log, queue, lambda config, _: alter(config))


async def change_at(log: Log, queue: str, alter: Callable[[Config | None, int], Config]) -> Found:
    """As `change`; `alter` is given the place as of which the settings are the newest."""
    while True:
        snapshot = await log.book.now(consistency="linearizable")
        try:
            found = await find(log, queue, snapshot)
        except Trimmed:
            continue
        config = alter(found.config if found is not None else None, snapshot)
        if config.deleted and found is None:
            raise no_such_queue(queue)
        if found is not None and config == found.config:
            return found
        tag = tags.queue_config(queue)
        try:
            seqnum = await log.append(Contribution((tag,), {tag: snapshot}, (config,)), settle=True)
        except Conflict:
            continue
        await log.book.trim([(tag, seqnum)])
        return Found(config, seqnum)


async def change_existing(log: Log, queue: str, alter: Callable[[Config], Config]) -> Found:
    """As `change`, of a queue that exists. Raises NoSuchQueue."""

    def altered(config: Config | None) -> Config:
        if config is None:
            raise no_such_queue(queue)
        return alter(config)

    return await change(log, queue, altered)


async def register(log: Log, queue: str, group: str) -> Found:
    """Adds a group, which gets what is pushed from then on; nothing, if there is one. Raises NoSuchQueue.

    It begins above the settings that lacked it, below which whoever dropped it trims (`carrying.trim_dropped`).
    """

    def altered(config: Config | None, snapshot: int) -> Config:
        if config is None:
            raise no_such_queue(queue)
        return with_group(config, group, snapshot + 1)

    return await change_at(log, queue, altered)


async def again(log: Log, found: Found) -> Found:
    """The same settings once more, so that they are not old. Raises Conflict: they were changed."""
    tag = tags.queue_config(found.config.queue)
    seqnum = await log.append(Contribution((tag,), {tag: found.seqnum}, (found.config,)), settle=True)
    await log.book.trim([(tag, seqnum)])
    return Found(found.config, seqnum)


def with_group(config: Config, group: str, start: int) -> Config:
    """The settings with one group more; those that have it stay as they are."""
    if group in config.groups:
        return config
    return msgspec.structs.replace(config, groups={**config.groups, group: start})


def without_group(config: Config, group: str) -> Config:
    """The settings without a group. Raises NoSuchGroup."""
    if group not in config.groups:
        raise no_such_group(config, group)
    return msgspec.structs.replace(config, groups={name: at for name, at in config.groups.items() if name != group})


def with_limits(config: Config, dead_letter: str | None, max_deliveries: int | None, limits: Limits | None) -> Config:
    """The settings with others for what may be changed. None: as it is; `dead_letter` "": none.

    Raises InvalidArgument.
    """
    name = config.dead_letter if dead_letter is None else dead_letter or None
    most = config.attempts_most if max_deliveries is None else max_deliveries
    if max_deliveries is None:
        most = 0 if name is None else most if config.dead_letter is not None else MAX_DELIVERIES
    return checked(
        msgspec.structs.replace(
            config, dead_letter=name, max_deliveries=most, limits=config.limits if limits is None else limits
        )
    )


def checked(config: Config) -> Config:
    """Return the settings. Raises InvalidArgument."""
    if config.mode not in ("consume", "pop"):
        raise InvalidArgument(f"expected mode to be 'consume' or 'pop', found {config.mode!r}", found=config.mode)
    check_shards(config.shards, check_limits(config.limits).in_flight)
    if type(config.max_deliveries) is not int or config.max_deliveries < 0:
        raise InvalidArgument(f"expected max_deliveries, or 0 for any number, found {config.max_deliveries!r}")
    check_limited(config, config.max_deliveries)
    if config.dead_letter is not None:
        check_name(config.dead_letter, "queue")
        if config.dead_letter == config.queue:
            raise InvalidArgument(
                f"expected another queue for dead letters, found {config.queue!r} itself", found=config.queue
            )
    return config


def check_limited(config: Config, most: int) -> None:
    """Raises InvalidArgument: attempts are limited, and nothing takes what failed so often."""
    if most and config.dead_letter is None:
        raise InvalidArgument(
            f"expected dead_letter= beside max_deliveries={most!r}: queue {config.queue!r} has no queue of dead letters, "
            "and drops nothing; name one, or leave max_deliveries out",
            found=most,
        )


def deleted(config: Config) -> Config:
    """The settings of a queue that is deleted."""
    return msgspec.structs.replace(config, groups={}, deleted=True)


def purged(config: Config, group: str, start: int) -> Config:
    """The settings by which a group gets nothing from below a place. Raises NoSuchGroup."""
    if group not in config.groups:
        raise no_such_group(config, group)
    return msgspec.structs.replace(config, groups={**config.groups, group: max(start, config.groups[group])})


def with_key_rate(config: Config, key: str, per_second: float | None) -> Config:
    """The settings by which a key has a rate of its own; None: as all keys. Raises InvalidArgument: too many have."""
    rates = {name: rate for name, rate in config.key_rates.items() if name != key}
    if per_second is not None:
        rates[key] = check_key_rate(per_second)
    if len(rates) > KEY_RATES:
        raise InvalidArgument(
            f"expected {KEY_RATES} keys with a rate of their own at most, found {len(rates)}: give some back with None",
            expected=KEY_RATES,
            found=len(rates),
        )
    return msgspec.structs.replace(config, key_rates=rates)


def with_dropped(config: Config, seqnum: int) -> Config:
    """The settings by which nobody gets the messages of a record; records from below all groups are left out.

    Raises InvalidArgument: too many are dropped.
    """
    begins = min(config.groups.values(), default=0)
    dropped = sorted({one for one in (*config.dropped, seqnum) if one >= begins})
    if len(dropped) > DROPPED:
        raise InvalidArgument(
            f"expected {DROPPED} records that are dropped at most, found {len(dropped)}: purge the queue's groups",
            expected=DROPPED,
            found=len(dropped),
        )
    return msgspec.structs.replace(config, dropped=tuple(dropped))


def no_such_queue(queue: str) -> NoSuchQueue:
    """The error for a queue that is not in the book."""
    return NoSuchQueue(f"there is no queue {queue!r} in this book: `Queue.open` makes one", queue=queue)


def no_such_group(config: Config, group: str) -> NoSuchGroup | NoSuchQueue:
    """Return the error for a group that is not registered, or whose queue is deleted."""
    if config.deleted:
        return no_such_queue(config.queue)
    return NoSuchGroup(
        f"queue {config.queue!r} has no group {group!r}, only {sorted(config.groups)}: `await queue.register({group!r})` adds it",
        found=group,
        expected=sorted(config.groups),
    )
