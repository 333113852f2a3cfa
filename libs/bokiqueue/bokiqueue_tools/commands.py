"""Commands of `boki queue`: `ls`, `stats`, `peek`, `redrive`, `purge`, `pause`, `resume`, `limit`, `change` and `delete`.

`boki_cli` finds `register` by the entry point group `boki.commands`. Importing this module imports no library: a
command imports those that it needs when it runs, so that `boki --help` stays fast.
"""

from __future__ import annotations

import shlex
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final

import click

from boki_cli import exit_codes
from boki_cli.clients import connected
from boki_cli.number_types import Whole
from boki_cli.options import (
    BOOK,
    CHECK,
    YES,
    CommandGroup,
    Invocation,
    command,
    end_of_list,
    failed_check,
    show_facts,
)
from boki_cli.wording import time_text
from boki_common.errors import UsageError
from boki_common.runtime import process

if TYPE_CHECKING:
    from bokilib import Log
    from bokiqueue import Queue

_NAME: Final = click.argument("name", metavar="QUEUE")
_GROUP: Final = click.option(
    "--group", "consumers", default="default", metavar="G", help="The group of consumers.", show_default=True
)


def register(group: click.Group) -> None:
    """Add the commands of this module."""
    queue = CommandGroup("queue", help="Look at the queues of a book and manage them.")
    group.add_command(queue)
    for add in (
        _register_ls,
        _register_stats,
        _register_peek,
        _register_redrive,
        _register_purge,
        _register_pause,
        _register_limit,
        _register_change,
        _register_delete,
    ):
        add(queue)


@asynccontextmanager
async def _log(invocation: Invocation, book: str) -> AsyncIterator[Log]:
    from bokilib import Log

    async with connected(invocation) as client:
        yield Log(client.book(book))


@asynccontextmanager
async def _opened(invocation: Invocation, book: str, name: str) -> AsyncIterator[Queue[object]]:
    """Open a queue that exists.

    Raises:
        NoSuchQueue, NoSuchGroup: with a text for the command line, which names the book and what exists in it.
    """
    from bokiqueue import NoSuchGroup, NoSuchQueue, Queue, settings

    async with _log(invocation, book) as log:
        try:
            await settings.existing(log, name)
            yield await Queue.open(log, name, object)
        except NoSuchQueue as error:
            text = f"there is no queue {name!r} in the book {book!r}; `boki queue ls --book {shlex.quote(book)}` lists its queues"
            raise NoSuchQueue(text, **error.facts) from error
        except NoSuchGroup as error:
            groups = ", ".join(map(repr, error.facts["expected"])) or "none"
            text = f"queue {name!r} in the book {book!r} has no group {error.facts['found']!r}; its groups: {groups}"
            raise NoSuchGroup(text, **error.facts) from error


def _run(invocation: Invocation, work: Callable[[], Coroutine[Any, Any, int]], *, check: bool) -> int:
    """Run a command that looks at a queue. With --check a missing queue or group fails the check, with a sentence."""

    async def checked() -> int:
        from bokiqueue import NoSuchGroup, NoSuchQueue

        try:
            return await work()
        except (NoSuchQueue, NoSuchGroup) as error:
            if not check:
                raise
            return failed_check(invocation, str(error))

    return process.run_command(checked)


def _register_ls(group: CommandGroup) -> None:
    @command(group, "ls", writes=False, client=True, short_help="List the queues of a book.")
    @BOOK
    @CHECK
    def ls(invocation: Invocation, book: str, check: bool) -> int:
        """List the queues of a book with their groups of consumers. There is no list of queues, so the whole book is read.

        With --json each line is an object with queue, mode, shards, groups, dead_letter, paused and key_rates.

        \b
            boki queue ls --book shop
            boki queue ls --book shop --json
        """

        async def work() -> int:
            from bokiqueue.manage import inspection
            from bokiqueue_tools.wording import config_facts, config_line

            async with _log(invocation, book) as log:
                found = await inspection.queues(log)
            for config in found:
                show_facts(invocation, config_facts(config), config_line(config))
            return end_of_list(invocation, len(found), f"There are no queues in the book {book!r}.", check=check)

        return process.run_command(work)


def _register_stats(group: CommandGroup) -> None:
    @command(
        group,
        "stats",
        writes=False,
        client=True,
        short_help="Show how many messages wait, for how long, and who consumes.",
    )
    @_NAME
    @BOOK
    @_GROUP
    @click.option(
        "--check", is_flag=True, help="Exit code 1 if no member consumes it, or there is no such queue or group."
    )
    def stats(invocation: Invocation, name: str, book: str, consumers: str, check: bool) -> int:
        """Show how many messages wait for a group and are in flight, the age of the oldest, the members and the owner of each shard.

        It appends nothing. With --json an object with depth, in_flight, delayed, unopened, age_ms, paused, consumed,
        members and shards.

        \b
            boki queue stats emails --book shop
            boki queue stats emails --book shop --group audit --json
            boki queue stats emails --book shop --check
        """

        async def work() -> int:
            import boki
            from bokiqueue_tools.wording import consumers_line, stats_facts, stats_lines

            async with _opened(invocation, book, name) as queue:
                found = await queue.stats(consumers, at_ms=boki.SystemClock().now_ms())
            show_facts(invocation, stats_facts(found), *stats_lines(found))
            if check and found.mode == "consume" and not found.consumed:
                return failed_check(invocation, consumers_line(found))
            return exit_codes.OK

        return _run(invocation, work, check=check)


def _register_peek(group: CommandGroup) -> None:
    @command(group, "peek", writes=False, client=True, short_help="Show the oldest unfinished messages.")
    @_NAME
    @BOOK
    @_GROUP
    @click.option("--limit", type=Whole(1), default=10, metavar="N", help="Show at most N messages.", show_default=True)
    @CHECK
    def peek(invocation: Invocation, name: str, book: str, consumers: str, limit: int, check: bool) -> int:
        """Show the oldest unfinished messages without taking them. It appends nothing.

        Each line begins with the id by which log lines name the message. With --json each line is an object with shard,
        seqnum, number, pushed_ms, state, attempts, key, source, body and priority; the source of a dead letter has
        queue, attempts, reason, and the error of the last attempt with its stack.

        \b
            boki queue peek emails --book shop
            boki queue peek emails.dead --book shop --limit 100 --json
        """

        async def work() -> int:
            from bokiqueue_tools.wording import peeked_facts, peeked_line

            async with _opened(invocation, book, name) as queue:
                found = await queue.peek(limit, group=consumers)
            for one in found:
                show_facts(invocation, peeked_facts(one), f"{time_text(one.pushed_ms)}  {peeked_line(one)}")
            nothing = f"No message of {name!r} waits for {consumers!r}, and none is in flight."
            return end_of_list(invocation, len(found), nothing, check=check)

        return _run(invocation, work, check=check)


def _register_redrive(group: CommandGroup) -> None:
    @command(group, "redrive", writes=True, client=True, short_help="Move dead letters back to their queues.")
    @_NAME
    @BOOK
    @click.option(
        "--limit", type=Whole(1), metavar="N", help="Move at most N messages.  [default: all that are there now]"
    )
    @click.option(
        "--group",
        "consumers",
        metavar="GROUP",
        help="The group that gets messages whose own group is not known, or not registered any more.",
    )
    @click.option("--all-groups", is_flag=True, help="Let all groups get such messages, also those that handled them.")
    def redrive(
        invocation: Invocation, name: str, book: str, limit: int | None, consumers: str | None, all_groups: bool
    ) -> int:
        """Move messages of a queue of dead letters back to the queues that they came from. Each moves in one record, so once.

        Each goes to the group that gave it up alone. Messages that other consumers of the dead letters have are left to them, and
        so are messages whose queue or group does not exist.

        \b
            boki queue redrive emails.dead --book shop
        """

        async def work() -> int:
            async with _opened(invocation, book, name) as queue:
                moved = await queue.redrive(limit, group=consumers, all_groups=all_groups)
            counts = {"left": dict(moved.left), "without_group": dict(moved.without_group)}
            facts = {"queue": name, "moved": int(moved), **counts}
            show_facts(invocation, facts, f"{moved} messages moved back")
            for missing, count in moved.left.items():
                invocation.say(
                    f"{count} messages are left: they came from {missing!r}, and there is no queue of that name in the book {book!r}."
                    " Make it and run this again, or consume them here."
                )
            for target, count in moved.without_group.items():
                invocation.say(
                    f"{count} messages are left: they came from {target!r}, and the group that gave them up is not known, or not registered"
                    " there. Run this again with --group GROUP, or with --all-groups."
                )
            return exit_codes.OK

        return process.run_command(work)


def _register_purge(group: CommandGroup) -> None:
    @command(group, "purge", writes=True, client=True, short_help="Drop all messages that wait for a group.")
    @_NAME
    @BOOK
    @_GROUP
    @click.option(
        "--record",
        type=Whole(1),
        metavar="SEQNUM",
        help="Drop this record only, for all groups. It must be one that cannot be opened.",
    )
    @YES
    def purge(invocation: Invocation, name: str, book: str, consumers: str, record: int | None, yes: bool) -> int:
        """Drop all messages for a group that were pushed before now. Handlers finish the messages that they have.

        A record that cannot be opened (`peek` shows it) keeps back messages behind it in its shard that have a key or a
        deduplication id; --record drops that record alone. The command asks on a terminal; elsewhere --yes is needed.

        \b
            boki queue purge emails --book shop --yes
            boki queue purge emails --book shop --record 17179869211 --yes
        """
        what = f"all that waits in {name!r} for {consumers!r}" if record is None else f"record {record} of {name!r}"
        if not yes and not _sure(invocation, name, what):
            invocation.say("Nothing was dropped.")
            return exit_codes.REFUSED
        if record is not None:
            return _change(invocation, book, name, lambda queue: queue.purge_record(record), "purged")
        return _change(invocation, book, name, lambda queue: queue.purge(consumers), "purged")


def _sure(invocation: Invocation, name: str, what: str) -> bool:
    return invocation.confirm(f"Drop {what}?", lost=f"messages of {name!r} cannot be restored")


def _register_pause(group: CommandGroup) -> None:
    @command(group, "pause", writes=True, client=True, short_help="Stop deliveries.")
    @_NAME
    @BOOK
    def pause(invocation: Invocation, name: str, book: str) -> int:
        """Stop deliveries of a queue, to all groups, until `resume`. Pushes continue, and handlers finish the messages that they have.

        \b
            boki queue pause emails --book shop
        """
        return _change(invocation, book, name, lambda queue: queue.pause(), "paused")

    @command(group, "resume", writes=True, client=True, short_help="Resume deliveries.")
    @_NAME
    @BOOK
    def resume(invocation: Invocation, name: str, book: str) -> int:
        """Resume deliveries of a paused queue.

        \b
            boki queue resume emails --book shop
        """
        return _change(invocation, book, name, lambda queue: queue.resume(), "resumed")


def _register_limit(group: CommandGroup) -> None:
    @command(group, "limit", writes=True, client=True, short_help="Give one key a rate of its own.")
    @_NAME
    @click.argument("key", metavar="KEY")
    @BOOK
    @click.option("--per-second", type=float, metavar="N", help="Messages delivered per second; 0 for no limit.")
    @click.option("--usual", is_flag=True, help="Take the key's own rate away.")
    def limit(invocation: Invocation, name: str, key: str, book: str, per_second: float | None, usual: bool) -> int:
        """Give one key of a queue a rate of its own, for each group, or take it away. Members apply it when they read it.

        \b
            boki queue limit emails ann --per-second 0.5 --book shop
            boki queue limit emails ann --usual --book shop
        """
        if usual == (per_second is not None):
            raise UsageError("expected --per-second N or --usual, one of them")
        done = "as usual" if per_second is None else f"{per_second:g}/s"
        return _change(invocation, book, name, lambda queue: queue.limit_key(key, per_second), done)


def _register_change(group: CommandGroup) -> None:
    @command(group, "change", writes=True, client=True, short_help="Change settings of a queue.")
    @_NAME
    @BOOK
    @click.option("--dead-letter", metavar="QUEUE", help="The queue that gets dead letters from now on.")
    @click.option("--no-dead-letter", is_flag=True, help="Give up no message any more.")
    @click.option(
        "--max-deliveries", type=Whole(0), metavar="N", help="Failed attempts before a dead letter; 0 for any number."
    )
    @click.option("--in-flight", type=Whole(0), metavar="N", help="Messages of a group in flight; 0 for no limit.")
    @click.option("--per-second", type=float, metavar="N", help="Messages of a group per second; 0 for no limit.")
    @click.option("--key-per-second", type=float, metavar="N", help="Messages of one key per second; 0 for no limit.")
    def change(
        invocation: Invocation,
        name: str,
        book: str,
        dead_letter: str | None,
        no_dead_letter: bool,
        max_deliveries: int | None,
        in_flight: int | None,
        per_second: float | None,
        key_per_second: float | None,
    ) -> int:
        """Change the dead letters and the limits of a queue. Members apply the new settings when they read them.

        \b
            boki queue change emails --dead-letter emails.dead --max-deliveries 5 --book shop
            boki queue change emails --in-flight 16 --book shop
        """
        if dead_letter is not None and no_dead_letter:
            raise UsageError("expected --dead-letter QUEUE or --no-dead-letter, found both")
        given = {"in_flight": in_flight, "per_second": per_second, "key_per_second": key_per_second}
        wanted: dict[str, Any] = {key: value for key, value in given.items() if value is not None}

        async def work(queue: Queue[object]) -> None:
            import msgspec

            limits = msgspec.structs.replace(queue.limits, **wanted) if wanted else None
            letters = "" if no_dead_letter else dead_letter
            await queue.change(dead_letter=letters, max_deliveries=max_deliveries, limits=limits)

        return _change(invocation, book, name, work, "changed")


def _register_delete(group: CommandGroup) -> None:
    @command(group, "delete", writes=True, client=True, short_help="Delete a queue with all its messages.")
    @_NAME
    @BOOK
    @YES
    def delete(invocation: Invocation, name: str, book: str, yes: bool) -> int:
        """Delete a queue with all its messages. Its members end with an error. The command asks on a terminal; elsewhere --yes is needed.

        \b
            boki queue delete emails --book shop --yes
        """
        if not yes and not _sure(invocation, name, f"queue {name!r} with all that waits in it"):
            invocation.say("Nothing was deleted.")
            return exit_codes.REFUSED
        return _change(invocation, book, name, lambda queue: queue.delete(), "deleted")


def _change(
    invocation: Invocation, book: str, name: str, change: Callable[[Queue[object]], Awaitable[None]], done: str
) -> int:
    async def work() -> int:
        async with _opened(invocation, book, name) as queue:
            await change(queue)
        show_facts(invocation, {"queue": name, "done": done}, done)
        return exit_codes.OK

    return process.run_command(work)
