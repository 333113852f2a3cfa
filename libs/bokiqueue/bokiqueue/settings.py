"""A queue's settings in the log: reading, making and changing them. One record has all of them, and the newest counts.

A change expects the newest settings that it read. If another change was faster, those settings are read and the change is
made to them. Records that depend on settings (a checkpoint that trims) expect their stream too.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

import msgspec

from boki_common.errors import Conflict, InvalidArgument, Trimmed
from bokilib.append.log import Log
from bokilib.records import tags
from bokilib.records.contribution import Contribution
from bokiqueue.errors import NoSuchGroup, NoSuchQueue
from bokiqueue.model.events import PICKER, Config, Limits
from bokiqueue.model.items import check_name
from bokiqueue.model.limit_rules import KEY_RATES, check_key_rate, check_limits
from bokiqueue.sharding import check_shards

MAX_DELIVERIES: Final = 5
"""The default for a queue with dead letters. A queue without them has no limit: no acknowledged push is dropped."""
DROPPED: Final = 256
"""The most dropped records in a queue's settings."""


class VersionedConfig(NamedTuple):
    """Settings, and the seqnum of their record."""

    config: Config
    seqnum: int


async def find(log: Log, queue: str, at_most: int | None = None) -> VersionedConfig | None:
    """Return the newest settings as of `at_most`, by default as of now; None if there is no such queue.

    Raises:
        Trimmed: `at_most` was given and there are newer ones.
    """
    found = await newest(log, queue, at_most)
    return None if found is None or found.config.deleted else found


async def newest(log: Log, queue: str, at_most: int | None = None) -> VersionedConfig | None:
    """Return settings as `find` does, also of a deleted queue."""
    place = at_most if at_most is not None else await log.book.now(consistency="linearizable")
    while True:
        try:
            record = await log.book.read_prev(tags.queue_config(queue), at_most=place)
        except Trimmed:  # newer ones replaced these, which are trimmed
            if at_most is not None:
                raise
            place = await log.book.now(consistency="linearizable")
            continue
        if record is None:
            return None
        for event in PICKER.of(record.seqnum, await log.open(record), about=queue):
            if isinstance(event, Config):
                return VersionedConfig(event, record.seqnum)
        place = record.seqnum - 1


async def existing(log: Log, queue: str) -> VersionedConfig:
    """Return the newest settings.

    Raises:
        NoSuchQueue: there is no such queue.
    """
    found = await find(log, queue)
    if found is None:
        raise no_such_queue(queue)
    return found


async def change(log: Log, queue: str, alter: Callable[[Config | None], Config]) -> VersionedConfig:
    """Change the settings, retrying while others are faster. Nothing is appended if they are so already.

    Args:
        alter: returns the new settings for the newest ones, None if there are none. It may run several times.
    """
    return await change_at(log, queue, lambda config, _: alter(config))


async def change_at(log: Log, queue: str, alter: Callable[[Config | None, int], Config]) -> VersionedConfig:
    """Change settings as `change` does; `alter` gets also the place as of which the settings are the newest."""
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
        return VersionedConfig(config, seqnum)


async def change_existing(log: Log, queue: str, alter: Callable[[Config], Config]) -> VersionedConfig:
    """Change settings as `change` does, of a queue that exists.

    Raises:
        NoSuchQueue: there is no such queue.
    """

    def altered(config: Config | None) -> Config:
        if config is None:
            raise no_such_queue(queue)
        return alter(config)

    return await change(log, queue, altered)


async def register(log: Log, queue: str, group: str) -> VersionedConfig:
    """Register a group, which gets all messages pushed from then on. No effect if it exists.

    It begins above the settings that lacked it, below which its former records are trimmed (`carrying.trim_dropped`).

    Raises:
        NoSuchQueue: there is no such queue.
    """

    def altered(config: Config | None, snapshot: int) -> Config:
        if config is None:
            raise no_such_queue(queue)
        return with_group(config, group, snapshot + 1)

    return await change_at(log, queue, altered)


async def again(log: Log, found: VersionedConfig) -> VersionedConfig:
    """Append the same settings again, so that they are not old.

    Raises:
        Conflict: they were changed.
    """
    tag = tags.queue_config(found.config.queue)
    seqnum = await log.append(Contribution((tag,), {tag: found.seqnum}, (found.config,)), settle=True)
    await log.book.trim([(tag, seqnum)])
    return VersionedConfig(found.config, seqnum)


def with_group(config: Config, group: str, start: int) -> Config:
    """Return the settings with a group that begins at `start`, unchanged if it exists."""
    if group in config.groups:
        return config
    return msgspec.structs.replace(config, groups={**config.groups, group: start})


def without_group(config: Config, group: str) -> Config:
    """Return the settings without a group.

    Raises:
        NoSuchGroup: it is not registered.
    """
    if group not in config.groups:
        raise no_such_group(config, group)
    return msgspec.structs.replace(config, groups={name: at for name, at in config.groups.items() if name != group})


def with_limits(config: Config, dead_letter: str | None, max_deliveries: int | None, limits: Limits | None) -> Config:
    """Return the settings with other limits. None keeps a setting; "" for `dead_letter` means none.

    Raises:
        InvalidArgument: a setting is out of range.
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
    """Return settings; raise InvalidArgument if one is out of range."""
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
    """Check that attempts are limited only beside a queue of dead letters.

    Raises:
        InvalidArgument: there is none.
    """
    if most and config.dead_letter is None:
        raise InvalidArgument(
            f"expected dead_letter= beside max_deliveries={most!r}: queue {config.queue!r} has no queue of dead letters, "
            "and drops nothing; name one, or leave max_deliveries out",
            found=most,
        )


def deleted(config: Config) -> Config:
    """Return the settings of a queue that is deleted."""
    return msgspec.structs.replace(config, groups={}, deleted=True)


def purged(config: Config, group: str, start: int) -> Config:
    """Return the settings by which a group gets messages from `start` on.

    Raises:
        NoSuchGroup: it is not registered.
    """
    if group not in config.groups:
        raise no_such_group(config, group)
    return msgspec.structs.replace(config, groups={**config.groups, group: max(start, config.groups[group])})


def with_key_rate(config: Config, key: str, per_second: float | None) -> Config:
    """Return the settings by which a key has a rate of its own, or none with None.

    Raises:
        InvalidArgument: too many keys have one, or it is out of range.
    """
    rates = {name: rate for name, rate in config.key_rates.items() if name != key}
    if per_second is not None:
        rates[key] = check_key_rate(per_second)
    if len(rates) > KEY_RATES:
        raise InvalidArgument(
            f"expected {KEY_RATES} keys with a rate of their own at most, found {len(rates)}: take some away with None",
            expected=KEY_RATES,
            found=len(rates),
        )
    return msgspec.structs.replace(config, key_rates=rates)


def with_dropped(config: Config, seqnum: int) -> Config:
    """Return the settings by which no group gets the messages of a record. Records below all groups are left out.

    Raises:
        InvalidArgument: too many records are dropped.
    """
    begins = min(config.groups.values(), default=0)
    dropped = sorted({one for one in (*config.dropped, seqnum) if one >= begins})
    if len(dropped) > DROPPED:
        raise InvalidArgument(
            f"expected {DROPPED} dropped records at most, found {len(dropped)}: purge the queue's groups",
            expected=DROPPED,
            found=len(dropped),
        )
    return msgspec.structs.replace(config, dropped=tuple(dropped))


def no_such_queue(queue: str) -> NoSuchQueue:
    """Return the error for a queue that is not in the book."""
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
