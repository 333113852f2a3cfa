"""The commands `boki rsm ls`, `show`, `timeline`, `resume` and `skip`; `testing_commands` has the others.

`boki_cli` finds `register` by the entry point group `boki.commands`. Importing this module imports no library: a command imports what
it needs when it runs, so that `boki --help` stays as quick as it is without libraries.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

from boki_cli import exit_codes
from boki_cli.number_types import Whole
from boki_cli.options import BOOK, CHECK, CommandGroup, Invocation, command, end_of_list, flush, show_facts, write_line
from boki_cli.wording import time_text
from boki_common.errors import BokiError, UsageError
from bokirsm_tools import testing_commands
from bokirsm_tools.command_parts import APP, ID, opened, progress, run

if TYPE_CHECKING:
    from bokilib import Log
    from bokirsm import Ref
    from bokirsm_tools.hosts import Hosts
    from bokirsm_tools.listing import Listing, Wanted
    from bokirsm_tools.machines import Machine


def register(group: click.Group) -> None:
    """Add the group `rsm` with all of its commands to the command line."""
    rsm = CommandGroup(
        "rsm",
        help="State machines of a book: which there are, what they did; decisions about faults. Tests of machines.",
    )
    group.add_command(rsm)
    for add in (_register_ls, _register_show, _register_timeline, _register_resume, _register_skip):
        add(rsm)
    testing_commands.register(rsm)


def _register_ls(group: CommandGroup) -> None:
    @command(group, "ls", writes=False, client=True, short_help="List machines.")
    @BOOK
    @APP
    @click.option("--state", default="", metavar="S", help="Only machines in this state.")
    @click.option("--class", "kind", default="", metavar="C", help="Only machines of this class.")
    @click.option("--faulted", is_flag=True, help="Only machines with a fault.")
    @click.option("--limit", type=Whole(1), default=50, metavar="N", help="At most N.", show_default=True)
    @click.option("--after", metavar="MACHINE", help="Only machines after this one: the next page.")
    @CHECK
    def ls(
        invocation: Invocation,
        book: str,
        app: str | None,
        state: str,
        kind: str,
        faulted: bool,
        limit: int,
        after: str | None,
        check: bool,
    ) -> int:
        """List machines, in the order of their apps and names.

        A line has the status, the machine as app/partition/name, its class, its state, the number of events that wait, its fault, and
        why no living host owns it. The status is ready, faulted, halted, new (no host has handled its creation) or absent (events wait
        for a machine that was never created; its host drops them).

        States and classes are known by their stored names. Without --app the command reads the whole book to find its apps; with it, it
        does so if machines of the app are in snapshots, but not with --faulted. If there are more than N machines, the last line names
        the --after that shows the next ones; with --json it is an object with after.

        Exit code 1: the book has no machines, or no such app.

        \b
            boki rsm ls --book shop --faulted
            boki rsm ls --book shop --app orders --class Order --state paid --json
        """
        from bokirsm_tools.listing import Wanted

        wanted = Wanted(state, kind, faulted)
        return run(lambda: _ls(invocation, book, app, wanted, limit, after, check=check))


async def _ls(
    invocation: Invocation, book: str, app: str | None, wanted: Wanted, limit: int, after: str | None, *, check: bool
) -> int:
    from boki_common.runtime.process import SystemClock
    from bokirsm import Ref
    from bokirsm_tools.listing import listing
    from bokirsm_tools.reading import hosts_of, nothing_in
    from bokirsm_tools.wording import listed_facts, listed_line

    async with opened(invocation, book) as log:
        with progress(invocation, "reading the book") as counted:
            found = await listing(log, app, wanted, after=after, limit=limit, progress=counted)
            groups = dict.fromkeys(Ref.parse(one.ref).group for one in found.rows)
            hosts = {one: await hosts_of(log, one, SystemClock().now_ms()) for one in groups}
    if not found.groups:
        raise nothing_in(book, app)
    width = invocation.console().width if sys.stdout.isatty() else 0
    for one in found.rows:
        ref = Ref.parse(one.ref)
        if invocation.json:
            invocation.emit(listed_facts(one, hosts[ref.group]))
        else:
            write_line(listed_line(one, hosts[ref.group].text(ref.partition), width).encode())
    _show_rest(invocation, found)
    where = f"the book {book!r}" if app is None else f"the app {app!r} of the book {book!r}"
    return end_of_list(invocation, len(found.rows), f"No machine of {where} matches the filters.", check=check)


def _show_rest(invocation: Invocation, found: Listing) -> None:
    """Say where the next page begins.

    Raises:
        BokiError: this program cannot read some machines, which the list does not have.
    """
    if found.after is not None and invocation.json:
        invocation.emit({"after": found.after})
    flush()
    if found.after is not None:
        invocation.say(f"There may be more: --after {found.after}")
    _raise_first(found.unreadable)


def _raise_first(errors: list[BokiError]) -> None:
    if errors:
        first = errors[0]
        first.add_note("Machines that need such a record are not shown; all others are.")
        for more in errors[1:4]:
            first.add_note(f"Also: {more}")
        raise first


def _register_show(group: CommandGroup) -> None:
    @command(group, "show", writes=False, client=True, short_help="Show one machine.")
    @ID
    @BOOK
    @APP
    @click.option("--keys", type=Whole(1), default=20, metavar="N", help="Keys of a table, at most.", show_default=True)
    def show(invocation: Invocation, id: str, book: str, app: str | None, keys: int) -> int:
        """Show a machine: its class, state and fields, what waits in its inbox, its timers, its fault with the stack, and its host.

        MACHINE is app/partition/name, as `ls` prints it, or a name. For a name without --app the whole book is read.

        Values are shown without their classes, and cut where they are long. An event is shown as deferred once its machine has handled a
        later event of a program in its present state; whether a state defers an event that it has not passed yet, only its code says.

        With --json an object as of `ls`, with newest_commit (seqnum and time_ms of its record; null if that is not kept), fields
        (registers, and tables with keys and first), inbox and deferred (each with length and head), timers, fault (null, or seqnum,
        time_ms, event, timer, message, error, stack and skip) and position.

        Exit code 1: there is no such machine, app or book.

        \b
            boki rsm show orders/17/order-7 --book shop
            boki rsm show order-7 --book shop --app orders --json
        """

        async def work() -> int:
            from boki_common.runtime.process import SystemClock
            from bokirsm_tools.reading import hosts_of, life_of, resolve
            from bokirsm_tools.wording import life_facts, life_lines

            async with opened(invocation, book) as log:
                with progress(invocation, "reading") as counted:
                    ref = await resolve(log, book, app, id, counted)
                    life = await life_of(log, ref)
                    hosts = await hosts_of(log, ref.group, SystemClock().now_ms())
            show_facts(invocation, life_facts(life, hosts, keys), *life_lines(life, hosts, time_text, keys))
            return exit_codes.OK

        return run(work)


def _register_timeline(group: CommandGroup) -> None:
    @command(group, "timeline", writes=False, client=True, short_help="Show what a machine did.")
    @ID
    @BOOK
    @APP
    def timeline(invocation: Invocation, id: str, book: str, app: str | None) -> int:
        """Show what a machine did, in the order of the log: what it took, changed, sent and answered, its timers and faults.

        A line has the seqnum and the time of the record, the number of the machine's commit, the kind and what happened. The log has what
        its partition's checkpoints have not replaced: where records are missing, a line says so.

        \b
            arrives takes drops   an event that came, was handled, or was dropped since its machine does not exist
            fires timer cancels   a timer that was handled, set, or cancelled
            enters sets           the state, a register or the key of a table after the handler
            sends creates replies what a handler did to others
            faults resume skip    a handler that failed three times, and decisions of people
            halts                 the end of the machine

        With --json each is an object with seqnum, time_ms, kind and further members that depend on the kind.

        Exit code 1: there is no such machine, app or book.

        \b
            boki rsm timeline orders/17/order-7 --book shop
            boki rsm timeline order-7 --book shop --json
        """
        return run(lambda: _timeline(invocation, book, app, id))


async def _timeline(invocation: Invocation, book: str, app: str | None, id: str) -> int:
    from bokilib.errors import UnknownEvent
    from bokirsm_tools.reading import entries, life_of, resolve
    from bokirsm_tools.wording import entry_facts, entry_line

    count, unreadable = 0, list[BokiError]()
    async with opened(invocation, book) as log:
        with progress(invocation, "reading the book") as counted:
            ref = await resolve(log, book, app, id, counted)
        with progress(invocation, "reading its partition", prints=True) as counted:
            async for one in entries(log, ref, progress=counted):
                if one.kind == "unreadable":
                    unreadable.append(UnknownEvent(one.facts["error"], seqnum=one.seqnum))
                if invocation.json:
                    invocation.emit(entry_facts(one))
                else:
                    write_line(entry_line(one, time_text).encode())
                count += one.kind not in ("missing", "unreadable")
        flush()
        if not count and not unreadable:
            await life_of(log, ref)  # it exists, or this raises
            invocation.say("Nothing that it did is kept: `boki rsm show` has what it is now.")
    _raise_first(unreadable)
    return exit_codes.OK


def _register_resume(group: CommandGroup) -> None:
    @command(group, "resume", writes=True, client=True, short_help="Have faulted machines try their event again.")
    @click.argument("id", metavar="[MACHINE]", required=False)
    @BOOK
    @APP
    @click.option("--all", "every", is_flag=True, help="All machines with a fault instead of one.")
    @click.option("--class", "kind", default="", metavar="C", help="With --all: only machines of this class.")
    @click.option("--error", default="", metavar="E", help="With --all: only faults by this error.")
    @click.option("--check", is_flag=True, help="With --all: exit code 1 if there is no such machine.")
    def resume(
        invocation: Invocation,
        id: str | None,
        book: str,
        app: str | None,
        every: bool,
        kind: str,
        error: str,
        check: bool,
    ) -> int:
        """Have the host of a faulted machine handle its event again, with the code that the host has now. `show` says why it failed.

        With --all hosts do so for every faulted machine of the app, or of every app of the book, but not where the event is to be
        skipped. E is the name of an error class, such as ZeroDivisionError. The command prints how many machines there are; with --json
        an object for each.

        Exit code 1: there is no such machine, app or book.

        \b
            boki rsm resume orders/17/order-7 --book shop
            boki rsm resume --all --class Order --error KeyError --book shop
        """
        if (id is None) is not every or ((error or kind or check) and not every):
            raise UsageError("expected either MACHINE or --all, and --class, --error and --check with --all")
        if id is not None:
            return run(lambda: _decide(invocation, book, app, id, skip=False))
        return run(lambda: _resume_all(invocation, book, app, kind, error, check=check))


def _register_skip(group: CommandGroup) -> None:
    @command(group, "skip", writes=True, client=True, short_help="Drop the event of a faulted machine.")
    @ID
    @BOOK
    @APP
    def skip(invocation: Invocation, id: str, book: str, app: str | None) -> int:
        """Have the host of a faulted machine drop the event that failed, and handle the next one. The event cannot be restored.

        Exit code 1: there is no such machine, app or book.

        \b
            boki rsm skip orders/17/order-7 --book shop
        """
        return run(lambda: _decide(invocation, book, app, id, skip=True))


async def _decide(invocation: Invocation, book: str, app: str | None, id: str, *, skip: bool) -> int:
    from bokirsm_tools.deciding import decide
    from bokirsm_tools.reading import life_of, resolve

    async with opened(invocation, book) as log:
        with progress(invocation, "reading") as counted:
            ref = await resolve(log, book, app, id, counted)
            machine = (await life_of(log, ref)).machine
        fault = await decide(log, ref, skip=skip)
        alone = (await _hosts(log, ref)).text(ref.partition)
    done, said = "", f"nothing to do: it has no fault, it is {machine.status}"
    if fault is not None:
        done = "asked to drop its event" if skip else "asked to try again"
        said = f"{done}{_event(fault.event)}{f': {alone}; the next one does it' if alone else ''}"
    facts = {"id": str(ref), "done": done, "fault": None if fault is None else fault.seqnum}
    show_facts(invocation, facts | {"error": None if fault is None else fault.error}, said)
    return exit_codes.OK


def _event(event: str) -> str:
    from boki_gateway.pages.texts import printable

    return f", {printable(event)}" if event else ""


async def _hosts(log: Log, ref: Ref[Any]) -> Hosts:
    from boki_common.runtime.process import SystemClock
    from bokirsm_tools.reading import hosts_of

    return await hosts_of(log, ref.group, SystemClock().now_ms())


async def _resume_all(invocation: Invocation, book: str, app: str | None, kind: str, error: str, *, check: bool) -> int:
    from bokirsm import Ref
    from bokirsm_tools.deciding import decide
    from bokirsm_tools.listing import Wanted, listing
    from bokirsm_tools.reading import nothing_in

    waits: dict[str, str] = {}
    count, after = 0, None
    async with opened(invocation, book) as log:
        while True:
            with progress(invocation, "reading the book") as counted:
                found = await listing(log, app, Wanted("", kind, True), after=after, limit=500, progress=counted)
            if not found.groups:
                raise nothing_in(book, app)
            for one in found.rows:
                ref = Ref.parse(one.ref)
                if not _is_by(one, error) or await decide(log, ref, skip=False) is None:
                    continue
                count += 1
                if invocation.json:
                    assert one.fault is not None
                    invocation.emit({"id": one.ref, "fault": one.fault.seqnum, "error": one.fault.error})
                if ref.group not in waits:
                    waits[ref.group] = (await _hosts(log, ref)).alone
            after = found.after
            if after is None:
                break
    if not invocation.json:
        write_line(f"{count:,} asked to try again".encode())
    flush()
    for name, alone in waits.items():
        if alone:
            invocation.say(f"Machines of the app {name!r} wait for a host: {alone}.")
    _raise_first(found.unreadable)
    where = f"the book {book!r}" if app is None else f"the app {app!r} of the book {book!r}"
    which = "".join([f" of class {kind}" if kind else "", f" by {error}" if error else ""])
    return end_of_list(invocation, count, f"No machine of {where} has a fault{which}.", check=check)


def _is_by(one: Machine, error: str) -> bool:
    """Return whether a person may resume a machine together with others: its fault is by this error, if one is named."""
    if one.fault is None or one.fault.skip:
        return False
    return not error or one.fault.error.partition(":")[0].rpartition(".")[2] == error.rpartition(".")[2]
