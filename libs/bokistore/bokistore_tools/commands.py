"""`boki store get | ls | history | diff | watch`: the objects of a store, for people and scripts. They read only.

`boki_cli` finds `register` by the entry point group `boki.commands`. Importing this module imports no library: those that a command
needs are there once it runs, so that `boki --help` costs what it did.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final

import click

from boki_cli import exit_codes, standard_streams
from boki_cli.clients import connected
from boki_cli.number_types import Whole
from boki_cli.options import (
    BOOK,
    CHECK,
    CONSISTENCY,
    CommandGroup,
    Invocation,
    command,
    end_of_list,
    failed_check,
    flush,
    write_line,
)
from boki_cli.records.book_commands import until_stopped
from boki_cli.wording import time_text
from boki_common.errors import BokiError
from boki_common.runtime import process

if TYPE_CHECKING:
    from bokilib.ports import ConsistencyName
    from bokistore import BokiStore, Version, Watched

_SEQNUM: Final = Whole(1, 2**63 - 1)
_NAME: Final = click.argument("name", metavar="OBJECT")
_AT: Final = click.option("--at", type=_SEQNUM, metavar="SEQ", help="Read at this seqnum instead of now.")


def register(group: click.Group) -> None:
    """Add the commands of this module."""
    store = CommandGroup("store", help="Show objects of a store: their values, history and changes.")
    group.add_command(store)
    for add in (_register_get, _register_ls, _register_history, _register_diff, _register_watch):
        add(store)


@asynccontextmanager
async def _opened(invocation: Invocation, book: str, *seqnums: int | None) -> AsyncIterator[BokiStore]:
    """Open the store of a book, and let it see up to the seqnums that the user names, if the log reaches them."""
    from bokistore import BokiStore, StoreSettings

    async with connected(invocation) as client:
        store = BokiStore(client.book(book), settings=StoreSettings(checkpoints=False))
        if any(seqnums):
            await store.log.book.now(consistency="linearizable")
        yield store


def _register_get(group: CommandGroup) -> None:
    @command(group, "get", writes=False, client=True, short_help="Print an object, or the value at a path of it.")
    @_NAME
    @click.argument("path", required=False, default="")
    @BOOK
    @_AT
    @CONSISTENCY
    def get(
        invocation: Invocation, name: str, path: str, book: str, at: int | None, consistency: ConsistencyName
    ) -> int:
        """Print an object as JSON, or the value at a path of it. Exit with code 4 if there is none.

        With --json on one line, as an object with object, path, seqnum (up to where it was seen), expires_ms and value.

        \b
            boki store get cart/7 --book shop
            boki store get cart/7 owner.name --book shop --at 34359738371
        """
        return process.run_command(lambda: _get(invocation, name, path, book, at, consistency))


async def _get(
    invocation: Invocation, name: str, path: str, book: str, at: int | None, consistency: ConsistencyName
) -> int:
    from boki_gateway.pages.texts import value_text
    from bokistore import MISSING, NoSuchObject
    from bokistore.model.operations import look, parse

    async with _opened(invocation, book, at) as store:
        view = await store.object(name).view(at, consistency)
    found = look(view.content, parse(path))
    if found is MISSING:
        where = f"nothing is at {path!r} of {name!r}" if view.exists else f"there is no object {name!r}"
        then = f"at {at}" if at is not None else "now"
        raise NoSuchObject(f"{where} in the book {book!r} {then}", object=name, path=path)
    if invocation.json:
        facts = {"object": name, "path": path, "seqnum": view.seen, "expires_ms": view.expires_ms, "value": found}
        invocation.emit(facts)
    else:
        write_line(value_text(found, indent=2).encode())
    return exit_codes.OK


def _register_ls(group: CommandGroup) -> None:
    @command(
        group, "ls", writes=False, client=True, short_help="List the objects of a book, or the ids of a collection."
    )
    @click.argument("collection", required=False)
    @BOOK
    @click.option("--prefix", default="", metavar="P", help="List only names with this prefix.")
    @click.option("--limit", type=Whole(1), metavar="N", help="List at most N.")
    @CHECK
    @_AT
    @CONSISTENCY
    def ls(
        invocation: Invocation,
        collection: str | None,
        book: str,
        prefix: str,
        limit: int | None,
        check: bool,
        at: int | None,
        consistency: ConsistencyName,
    ) -> int:
        """List the names of all objects of a book that exist, in order; or the ids of a collection.

        A store keeps no list of its objects: without a collection the whole book is read. A name is printed with escapes where it
        would end the line or move the cursor; with --json it is as it is.

        \b
            boki store ls --book shop --prefix cart/
            boki store ls user --book shop --limit 100 --json
        """

        async def work() -> int:
            count = await _ls(invocation, collection, book, prefix, limit, at, consistency)
            what = f"names that begin with {prefix!r}" if prefix else "objects" if collection is None else "ids"
            where = (
                f"the book {book!r}" if collection is None else f"the collection {collection!r} of the book {book!r}"
            )
            return end_of_list(invocation, count, f"There are no {what} in {where}.", check=check)

        return process.run_command(work)


async def _ls(
    invocation: Invocation,
    collection: str | None,
    book: str,
    prefix: str,
    limit: int | None,
    at: int | None,
    consistency: ConsistencyName,
) -> int:
    from boki_gateway.pages.texts import printable

    count = 0
    async with _opened(invocation, book, at) as store:
        async for name, facts in _names(store, collection, at, consistency):
            if name.startswith(prefix):
                if invocation.json:
                    invocation.emit(facts)
                else:
                    write_line(printable(name).encode())
                count += 1
                if count == limit:
                    break
    flush()
    return count


async def _names(
    store: BokiStore, collection: str | None, at: int | None, consistency: ConsistencyName
) -> AsyncIterator[tuple[str, dict[str, object]]]:
    """Return the lines and the JSON of a list of names."""
    from bokistore.model.directory_rules import object_name

    if collection is None:
        for name in await store.names(at=at, consistency=consistency):
            yield name, {"object": name}
    else:
        for id in await store.collection(collection, dict).ids(at=at, consistency=consistency):
            yield id, {"id": id, "object": object_name(collection, id)}


def _register_history(group: CommandGroup) -> None:
    @command(group, "history", writes=False, client=True, short_help="Show the versions of an object.")
    @_NAME
    @BOOK
    @click.option("--from", "start", type=_SEQNUM, metavar="SEQ", help="First seqnum, inclusive.")
    @click.option("--to", "stop", type=_SEQNUM, metavar="SEQ", help="Last seqnum, exclusive.")
    @click.option("--limit", type=Whole(1), metavar="N", help="Show only the newest N.")
    @click.option("--values", is_flag=True, help="Show the object after each version.")
    @CHECK
    @CONSISTENCY
    def history(
        invocation: Invocation,
        name: str,
        book: str,
        start: int | None,
        stop: int | None,
        limit: int | None,
        values: bool,
        check: bool,
        consistency: ConsistencyName,
    ) -> int:
        """Show the versions of an object that the log still has, oldest first.

        With --json each line is an object with seqnum, time_ms, by (who wrote it), kind, operations and value.

        \b
            boki store history cart/7 --book shop --limit 10
            boki store history cart/7 --book shop --from 34359738371 --json
        """

        async def work() -> int:
            async with _opened(invocation, book, start, stop) as store:
                found = await store.object(name).history(start=start, stop=stop, limit=limit, consistency=consistency)
            for version in found:
                _show_version(invocation, version, values=values)
            nothing = f"There are no records of {name!r} in the book {book!r}."
            return end_of_list(invocation, len(found), nothing, check=check)

        return process.run_command(work)


def _show_version(invocation: Invocation, version: Version, *, values: bool) -> None:
    from boki_gateway.pages.texts import value_text
    from bokistore_tools.wording import operation_text

    if invocation.json:
        invocation.emit(version._asdict())
        return
    write_line(f"{version.seqnum}  {time_text(version.time_ms)}  {version.kind}".encode())
    for operation in version.operations:
        write_line(f"    {operation_text(operation)}".encode())
    if values:
        text = "(none)" if version.value is None else value_text(version.value, indent=2)
        write_line("\n".join(f"    {line}" for line in text.splitlines()).encode())


def _register_diff(group: CommandGroup) -> None:
    @command(group, "diff", writes=False, client=True, short_help="Show the changes between two places of the log.")
    @_NAME
    @click.argument("before", type=_SEQNUM)
    @click.argument("after", type=_SEQNUM, required=False)
    @BOOK
    @click.option("--check", is_flag=True, help="Exit with code 1 if the two differ.")
    @CONSISTENCY
    def diff(
        invocation: Invocation,
        name: str,
        before: int,
        after: int | None,
        book: str,
        check: bool,
        consistency: ConsistencyName,
    ) -> int:
        """Show what changed in an object from one seqnum to another, or to now: + made, - removed, ~ another value.

        With --json each line is an object with path, and before and after where there is a value.

        \b
            boki store diff cart/7 34359738371 --book shop
            boki store diff cart/7 34359738371 34359738380 --book shop --check
        """

        async def work() -> int:
            async with _opened(invocation, book, before, after) as store:
                changes = await store.object(name).diff(before, after, consistency=consistency)
                there = bool(changes) or (await store.object(name).view(after, consistency)).exists
            if not there:
                none = _no_such_object(name, book)
                if not check:
                    raise none
                return failed_check(invocation, str(none))
            _show_changes(invocation, changes)
            flush()
            return exit_codes.CHECK_FAILED if check and changes else exit_codes.OK

        return process.run_command(work)


def _no_such_object(name: str, book: str) -> BokiError:
    from bokistore import NoSuchObject

    return NoSuchObject(f"there is no object {name!r} in the book {book!r}", object=name)


def _show_changes(invocation: Invocation, changes: Any, indent: str = "") -> None:
    from bokistore_tools.wording import change_object, change_text

    for change in changes:
        if invocation.json:
            invocation.emit(change_object(change))
        else:
            write_line(f"{indent}{change_text(change)}".encode())


def _register_watch(group: CommandGroup) -> None:
    @command(group, "watch", writes=False, client=True, short_help="Follow an object as it changes.")
    @_NAME
    @BOOK
    @click.option(
        "--from", "start", type=_SEQNUM, metavar="SEQ", help="Begin with the changes at this seqnum.  [default: now]"
    )
    @click.option("--limit", type=Whole(1), metavar="N", help="Stop after N changes.")
    def watch(invocation: Invocation, name: str, book: str, start: int | None, limit: int | None) -> int:
        """Follow an object: each change as it comes, until Ctrl-C.

        With --json each line is an object with seqnum, before, after, changes and resync (true: several changes in one, because the
        log does not keep what was between).

        \b
            boki store watch cart/7 --book shop
            boki store watch cart/7 --book shop --json --limit 1
        """
        return process.run(lambda stop: _watch(invocation, name, book, start, limit, stop))


async def _watch(
    invocation: Invocation, name: str, book: str, start: int | None, limit: int | None, stop: asyncio.Event
) -> int:
    async def follow() -> None:
        count = 0
        async with _opened(invocation, book, start) as store:
            if not (await store.object(name).view()).exists:
                invocation.say(f"{_no_such_object(name, book)}: its first change is shown")
            async for watched in store.object(name).watch(start=start):
                _show_watched(invocation, watched)
                count += 1
                if count == limit:
                    return

    with standard_streams.reader_watched(stop.set):
        await until_stopped(follow(), stop)
    return exit_codes.OK


def _show_watched(invocation: Invocation, watched: Watched) -> None:
    from bokistore_tools.wording import change_object

    if invocation.json:
        changes = [change_object(change) for change in watched.changes]
        invocation.emit(watched._asdict() | {"changes": changes})
    else:
        write_line(f"{watched.seqnum}{'  several changes in one' if watched.resync else ''}".encode())
        _show_changes(invocation, watched.changes, "    ")
    flush()
