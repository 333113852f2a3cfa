"""A queue's settings in the log: reading, making and changing them. One record has all of them, and the newest counts.

A change expects the newest settings that it read. If another change was faster, those settings are read and the change is
made to them. Records that depend on settings (a checkpoint that trims) expect their stream too.

A group that is registered again has nothing of its former registration: neither progress nor the deduplication window,
though members from before may have missed that it was dropped. So:

- Before a registration, claims for no member end the owners from before: none of their records can follow. These claims
  expect the settings that lack the group, so they end no owner of a registration that was faster.
- The registration says up to where records of the group are of a former one (`Config.registered`). Readers of the
  group's streams skip them, also if the process that dropped the group did not trim them.
- An owner reads the settings after its claim (`Checkpointing.load`): it fails if the group is not registered.
- A queue of dead letters may have one itself, but no queue gets its own letters back: a message that fails everywhere would
  go round without end. So a record that names a queue of dead letters expects the settings of all queues behind it to be
  those that were read (`_letters_after`): of two changes that would close a circle together one is refused.
- The deletion of a queue ends the owners of its first group in the same record, since a later queue of that name gets the
  messages that are pushed from the deletion on. (Of those of the first 254 shards: a record joins no more streams.)

A purge changes none of this: the group keeps its window, which comes from the messages since its registration. So the
settings of a purge say where that was.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

import msgspec

import boki
from boki_common.errors import BokiError, Conflict, InvalidArgument, Trimmed
from boki_common.limits import RECORD_TAGS
from boki_common.logs import get_logger
from bokilib.append.fence import Claimed
from bokilib.append.log import Log
from bokilib.errors import partly_applied
from bokilib.records import tags
from bokilib.records.contribution import Contribution, joined
from bokiqueue.errors import NoSuchGroup, NoSuchQueue, WrongMode
from bokiqueue.model.events import PICKER, Config, Limits
from bokiqueue.model.items import GROUP, check_name
from bokiqueue.model.limit_rules import KEY_RATES, check_key_rate, check_limits
from bokiqueue.model.rebalance_rules import NOBODY, fence_name
from bokiqueue.sharding import SHARDS_MOST, check_shards

MAX_DELIVERIES: Final = 5
"""The default for a queue with dead letters. A queue without them has no limit: no acknowledged push is dropped."""
DROPPED: Final = 256
"""The most dropped records in a queue's settings."""
LETTER_QUEUES: Final = 16
"""The most queues of dead letters behind a queue, each of the one before."""
MARKS: Final = 512
"""The most trim marks in one command."""

log_lines = get_logger(__name__)


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


async def change_existing(log: Log, queue: str, alter: Callable[[Config], Config]) -> VersionedConfig:
    """Change the settings of a queue that exists, retrying while others are faster. Nothing is appended if they are so already.

    Args:
        alter: returns the new settings for the newest ones. It may run several times.

    Raises:
        NoSuchQueue: there is no such queue.
        InvalidArgument, WrongMode: they name a queue of dead letters that cannot get its letters, see `_letters_after`.
    """
    while True:
        found, snapshot = await _existing_at(log, queue)
        config = alter(found.config)
        if config == found.config:
            return found
        named = config.dead_letter != found.config.dead_letter
        try:
            return await _replace(
                log, config, snapshot, *([await _letters_after(log, config, snapshot)] if named else [])
            )
        except (Conflict, Trimmed):
            continue


async def _letters_after(log: Log, config: Config, snapshot: int) -> Contribution:
    """Return the expectation that the queues behind a queue of dead letters have the settings that they have as of a place.

    Raises:
        InvalidArgument: letters would go round in a circle of queues, or through too many.
        WrongMode: one of them is popped: its letters could not be moved back.
        Trimmed: their settings were changed since.
    """
    path, name = [config.queue], config.dead_letter
    while name is not None:
        if name in path or len(path) > LETTER_QUEUES:
            where = " -> ".join(map(repr, [*path, name]))
            wanted = (
                f"dead_letter= to name a queue whose letters end somewhere, found {where}: what fails in each goes round without end"
                if name in path
                else f"up to {LETTER_QUEUES} queues of dead letters, each of the one before, found {where}"
            )
            raise InvalidArgument(f"expected {wanted}", expected=LETTER_QUEUES, found=[*path, name])
        path.append(name)
        found = await find(log, name, snapshot)
        if found is not None and found.config.mode != "consume":
            raise WrongMode(
                f"expected dead_letter= to name a queue that is consumed, found {name!r}, which is popped",
                expected="consume",
                found=found.config.mode,
            )
        name = None if found is None else found.config.dead_letter
    return Contribution((), {tags.queue_config(one): snapshot for one in path[1:]})


async def newest_at(log: Log, queue: str) -> tuple[VersionedConfig | None, int]:
    """Return the newest settings, also of a deleted queue, and the place as of which they are the newest."""
    while True:
        snapshot = await log.book.now(consistency="linearizable")
        try:
            return await newest(log, queue, snapshot), snapshot
        except Trimmed:
            continue


async def openable_at(log: Log, queue: str) -> tuple[VersionedConfig | None, int] | int:
    """Return what `newest_at` does, or only the place if this program cannot open the settings, as those of a later version."""
    place = await log.book.now(consistency="linearizable")
    try:
        return await newest_at(log, queue)
    except BokiError as error:
        if error.retryable:
            raise
        return place


async def _existing_at(log: Log, queue: str) -> tuple[VersionedConfig, int]:
    """Return settings as `newest_at` does, of a queue that exists.

    Raises:
        NoSuchQueue: there is no such queue.
    """
    found, snapshot = await newest_at(log, queue)
    if found is None or found.config.deleted:
        raise no_such_queue(queue)
    return found, snapshot


async def _replace(log: Log, config: Config, snapshot: int, *beside: Contribution) -> VersionedConfig:
    """Append settings that replace those as of a place, with claims that end owners, or further expectations.

    Raises:
        Conflict: they were changed since.
    """
    tag = tags.queue_config(config.queue)
    own = Contribution((tag,), {tag: snapshot}, (config,))
    seqnum = await log.append(joined([own, *beside]), settle=True)
    await trim_replaced(log, [(tag, seqnum)])
    return VersionedConfig(config, seqnum)


async def trim_all(log: Log, marks: Sequence[tuple[str, int]]) -> None:
    """Trim streams below their marks, in as many commands as that takes."""
    for first in range(0, len(marks), MARKS):
        await log.book.trim(marks[first : first + MARKS])


async def trim_replaced(log: Log, marks: Sequence[tuple[str, int]]) -> None:
    """Trim records that a change replaced. An error is logged and not raised, since the change is in the log.

    A later change or a round of rewriting trims what was left.
    """
    try:
        await trim_all(log, marks)
    except BokiError as error:
        log_lines.info("records that a change replaced are not trimmed: a later change trims them", error=error)


def _ended(queue: str, group: str, shards: Sequence[int]) -> Contribution:
    """Return claims for no member, under which no owner of these shards can append any more."""
    return Contribution(
        tuple(tags.queue_owner(queue, shard, group) for shard in shards),
        {},
        tuple(Claimed(fence_name(queue, shard, group), NOBODY) for shard in shards),
    )


async def create(log: Log, queue: str, make: Callable[[int], Config]) -> VersionedConfig:
    """Make a queue, and return its settings, or those of the existing one.

    Args:
        make: returns the settings of a queue whose messages are those from a seqnum on: above the deletion of an earlier
            queue of that name, below which records of its streams are trimmed. It may run several times.

    Raises:
        InvalidArgument, WrongMode: they name a queue of dead letters that cannot get its letters, see `_letters_after`.
    """
    while True:
        found, snapshot = await newest_at(log, queue)
        if found is not None and not found.config.deleted:
            return found
        deletion = found.seqnum if found is not None else await _trimmed_up_to(log, queue, snapshot)
        config = _after(found, make(deletion + 1), deletion)
        try:
            return await _replace(log, config, snapshot, await _letters_after(log, config, snapshot))
        except (Conflict, Trimmed):
            continue


def _after(found: VersionedConfig | None, config: Config, deletion: int) -> Config:
    """Return the settings of a new queue after a deletion, 0 for none. If that is trimmed, the shards of the queue are not known."""
    if not deletion:
        return config
    streams = SHARDS_MOST if found is None else max(found.config.streams, found.config.shards)
    return msgspec.structs.replace(config, made=deletion + 1, streams=streams)


async def _trimmed_up_to(log: Log, queue: str, snapshot: int) -> int:
    """Return the seqnum up to which settings were trimmed, 0 for none: carriers trim those of a deleted queue."""
    place = 0
    async for item in log.book.read(tags.queue_config(queue), start=1, stop=snapshot + 1):
        if isinstance(item, boki.Gap):
            place = max(place, item.last)
    return place


async def delete(log: Log, queue: str) -> tuple[Config, VersionedConfig]:
    """Delete a queue. Return its settings before, and those that say that it is deleted.

    Raises:
        NoSuchQueue: there is no such queue.
    """
    while True:
        found, snapshot = await _existing_at(log, queue)
        config = found.config
        shards = range(min(config.shards, RECORD_TAGS - 1)) if config.mode != "pop" else ()
        try:
            return config, await _replace(log, deleted(config), snapshot, _ended(queue, GROUP, shards))
        except Conflict:
            continue


async def register(log: Log, queue: str, group: str) -> VersionedConfig:
    """Register a group, which gets all messages pushed from then on. No effect if it exists.

    It begins above the claims that end owners of a former registration. So it begins above the settings that lacked it
    too, below which its former records are trimmed (`carrying.dropped_marks`).

    Raises:
        NoSuchQueue: there is no such queue.
        PartlyApplied: the group is not registered; call again.
    """
    while True:
        found, snapshot = await _existing_at(log, queue)
        if group in found.config.groups:
            return found
        try:
            place = await _end_owners(log, found.config, group, snapshot)
            with partly_applied("owners of an earlier registration are ended, the group is not registered; call again"):
                return await _replace(log, with_group(found.config, group, place + 1), snapshot)
        except Conflict:
            continue


async def _end_owners(log: Log, config: Config, group: str, snapshot: int) -> int:
    """End all owners of a group that is not registered as of a place, and return a seqnum above all their records.

    Raises:
        Conflict: the settings were changed since.
    """
    place, unchanged = snapshot, Contribution((), {tags.queue_config(config.queue): snapshot})
    for first in range(0, config.shards, RECORD_TAGS):
        shards = range(first, min(first + RECORD_TAGS, config.shards))
        place = await log.append(joined([_ended(config.queue, group, shards), unchanged]), settle=True)
    return place


async def again(log: Log, found: VersionedConfig) -> VersionedConfig:
    """Append the same settings again, so that they are not old.

    Raises:
        Conflict: they were changed.
    """
    tag = tags.queue_config(found.config.queue)
    seqnum = await log.append(Contribution((tag,), {tag: found.seqnum}, (found.config,)), settle=True)
    await trim_replaced(log, [(tag, seqnum)])
    return VersionedConfig(found.config, seqnum)


def with_group(config: Config, group: str, start: int) -> Config:
    """Return the settings with a group that begins at `start`, unchanged if it exists."""
    if group in config.groups:
        return config
    return msgspec.structs.replace(
        config, groups={**config.groups, group: start}, registered={**config.registered, group: start}
    )


def without_group(config: Config, group: str) -> Config:
    """Return the settings without a group.

    Raises:
        NoSuchGroup: it is not registered.
    """
    if group not in config.groups:
        raise no_such_group(config, group)
    groups, registered = dict(config.groups), dict(config.registered)
    del groups[group]
    registered.pop(group, None)
    return msgspec.structs.replace(config, groups=groups, registered=registered)


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
    return msgspec.structs.replace(config, groups={}, deleted=True, registered={})


def purged(config: Config, group: str, start: int) -> Config:
    """Return the settings by which a group gets messages from `start` on.

    Raises:
        NoSuchGroup: it is not registered.
    """
    if group not in config.groups:
        raise no_such_group(config, group)
    return msgspec.structs.replace(
        config,
        groups={**config.groups, group: max(start, config.groups[group])},
        registered={**config.registered, group: config.window_from(group)},
    )


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
    """Return the settings by which no group gets the messages of a record.

    Records that no group compares with its window are left out; if there are too many, also those that were purged.

    Raises:
        InvalidArgument: too many records are dropped.
    """
    begins = min((config.window_from(group) for group in config.groups), default=0)
    dropped = sorted({one for one in (*config.dropped, seqnum) if one >= begins})
    if len(dropped) > DROPPED:
        begins = min(config.groups.values(), default=0)
        dropped = [one for one in dropped if one >= begins]
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


def replaced_queue(config: Config) -> NoSuchQueue:
    """Return the error for a queue that was deleted and made again."""
    return NoSuchQueue(
        f"queue {config.queue!r} was deleted, and made again with {config.shards} shards in mode {config.mode!r}: open it again",
        queue=config.queue,
    )


def no_such_group(config: Config, group: str) -> NoSuchGroup | NoSuchQueue:
    """Return the error for a group that is not registered, or whose queue is deleted."""
    if config.deleted:
        return no_such_queue(config.queue)
    return NoSuchGroup(
        f"queue {config.queue!r} has no group {group!r}, only {sorted(config.groups)}: `await queue.register({group!r})` adds it",
        found=group,
        expected=sorted(config.groups),
    )
