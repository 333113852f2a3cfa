"""Pages of the machines of a book, in the order of apps and names, filtered."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from boki_common.errors import BokiError
from bokilib.append.log import Log
from bokirsm.machine.refs import Ref
from bokirsm_tools.machines import Machine, by_name, order
from bokirsm_tools.reading import GroupStates, Progress, Scan, group_states, has_group, load_all, no_progress, scan

BATCH: Final = 64
"""Machines that are read before the page is looked at again."""


class Wanted(NamedTuple):
    """The filters of a listing; an empty filter passes every machine.

    Attributes:
        state: the name of the state.
        kind: the name of the class.
        faulted: only machines with a fault.
    """

    state: str = ""
    kind: str = ""
    faulted: bool = False

    def fits(self, one: Machine) -> bool:
        """Return whether a machine passes all filters."""
        return (
            (not self.state or (one.state is not None and one.state.state == self.state))
            and (not self.kind or one.kind == self.kind)
            and (not self.faulted or one.fault is not None)
        )


class Listing(NamedTuple):
    """A page of machines.

    Attributes:
        groups: the apps that were looked into; empty if the book has none, or not the one that was named.
        rows: the machines.
        after: the machine after which the next page begins; None after the last page.
        unreadable: errors of partitions and machines that this program cannot read, each once.
    """

    groups: list[str]
    rows: list[Machine]
    after: str | None
    unreadable: list[BokiError]


async def listing(
    log: Log,
    group: str | None,
    wanted: Wanted,
    *,
    after: str | None = None,
    limit: int = 50,
    progress: Progress = no_progress,
) -> Listing:
    """Read one page of the machines of a book.

    Args:
        log: of the book.
        group: the app; None for all, for which the whole book is read.
        wanted: the filters.
        after: the machine after which the page begins.
        limit: machines on the page, at most.
        progress: called with the number of records that were read.

    Raises:
        InvalidArgument: `after` is no machine.
    """
    begin = None if after is None else order(after)
    found: Scan | None = None
    if group is None:
        found = await scan(log, progress)
        groups = found.groups
    else:
        groups = [group] if await has_group(log, group) else []
    rows, problems = list[Machine](), list[BokiError]()
    for name in groups:
        if begin is not None and name < begin[0]:
            continue
        states = await group_states(log, name)
        problems += states.unreadable.values()
        refs = states.faulted if wanted.faulted else states.refs
        if not wanted.faulted and states.has_trimmed:
            found = found or await scan(log, progress)
            refs = refs | found.refs.get(name, set())
        wait = [ref for ref in by_name(refs) if begin is None or order(ref) > begin]
        rows += await _page(log, states, wait, wanted, limit + 1 - len(rows), problems)
        if len(rows) > limit:
            break
    problems += found.unreadable if found is not None else ()
    once = list({str(error): error for error in problems}.values())
    return Listing(groups, rows[:limit], rows[limit - 1].ref if len(rows) > limit else None, once)


async def _page(
    log: Log, states: GroupStates, refs: Sequence[str], wanted: Wanted, count: int, problems: list[BokiError]
) -> list[Machine]:
    """Return the first `count` machines that pass the filters. `problems` gets errors of those that this program cannot read."""
    rows: list[Machine] = []
    for begin in range(0, len(refs), BATCH):
        readable = [ref for ref in refs[begin : begin + BATCH] if Ref.parse(ref).partition in states.states]
        for one in await load_all(log, states, readable):
            if isinstance(one, BokiError):
                problems.append(one)
            elif (one.waits or one.outputs or one.status != "absent") and wanted.fits(one):
                rows.append(one)
        if len(rows) >= count:
            break
    return rows[:count]
