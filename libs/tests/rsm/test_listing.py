"""Pages of machines: filters, the next page, machines in snapshots, and what this program cannot read."""

from __future__ import annotations

import pytest

from boki.testing import MemoryCluster
from boki_common.errors import InvalidArgument
from bokilib.append.log import Log
from bokilib.records import tags
from bokilib.records.contribution import Contribution
from bokilib.records.events import Event
from bokirsm.model.events import Checkpoint, Commit, Faulted, Inputs, Message, MessageId, Snapshot
from bokirsm.model.machine_state import MachineState, encode_state
from bokirsm.model.partition_state import PartitionState
from bokirsm_tools.listing import Listing, Wanted, listing
from libs.tests.rsm.test_reading import Newer


@pytest.fixture
async def log(cluster: MemoryCluster) -> Log:
    """The log of a book with machines of two apps: one has a fault, one halted, one exists in a snapshot only."""
    log = Log((await cluster.connect()).book("b"))
    await add(log, "g", 3, Commit("g/3/a", 1, 5, kind="M", state="run"))
    await add(log, "g", 4, Commit("g/4/b", 1, 5, kind="N", state="run"))
    await add(log, "g", 4, Faulted("g/4/b", MessageId(-1, 0), "wake", "E", "ValueError: no"))
    await add(log, "g", 5, Commit("g/5/c", 1, 5, kind="M", state="end", halted=True))
    await add(log, "h", 1, Inputs("h", (Message("h/1/d", kind="M"), Message("h/1/e", "E"))))
    return log


async def add(log: Log, group: str, partition: int, *events: Event) -> None:
    await log.append(Contribution((tags.rsm_partition(group, partition),), {}, events))


def refs(found: Listing) -> list[str]:
    return [one.ref for one in found.rows]


@pytest.mark.parametrize(
    ("group", "wanted", "expected"),
    [
        (None, Wanted(), ["g/3/a", "g/4/b", "g/5/c", "h/1/d", "h/1/e"]),
        ("g", Wanted(), ["g/3/a", "g/4/b", "g/5/c"]),
        (None, Wanted(kind="M"), ["g/3/a", "g/5/c", "h/1/d"]),
        (None, Wanted(state="run"), ["g/3/a", "g/4/b"]),
        (None, Wanted(faulted=True), ["g/4/b"]),
        ("g", Wanted("run", "N", True), ["g/4/b"]),
        ("g", Wanted("run", "M", True), []),
        (None, Wanted(kind="Unknown"), []),
        ("no", Wanted(), []),
    ],
)
async def test_a_list_has_what_passes_all_filters(
    log: Log, group: str | None, wanted: Wanted, expected: list[str]
) -> None:
    found = await listing(log, group, wanted)
    assert refs(found) == expected and found.after is None and not found.unreadable
    assert bool(found.groups) is (group != "no")


async def test_a_list_goes_page_by_page_over_apps(log: Log) -> None:
    seen: list[str] = []
    after: str | None = None
    for _ in range(3):
        found = await listing(log, None, Wanted(), after=after, limit=2)
        seen += refs(found)
        after = found.after
    assert seen == ["g/3/a", "g/4/b", "g/5/c", "h/1/d", "h/1/e"] and after is None
    with pytest.raises(InvalidArgument):
        await listing(log, None, Wanted(), after="x")


async def test_machines_that_only_their_snapshots_name_are_listed(log: Log) -> None:
    idle = MachineState("M", 7, 5, "run")
    one = Snapshot("g/idle", 7, 0, 1, encode_state(idle), False, 9)
    await log.append(Contribution((tags.rsm_machine("g", "idle"),), {}, (one,)))
    covers = await log.book.now()
    data = PartitionState("g", 9).checkpoint(covers)
    await log.append(Contribution((tags.rsm_checkpoint("g", 9),), {}, (Checkpoint("g/9", covers, 0, 1, data),)))
    assert refs(await listing(log, "g", Wanted())) == ["g/3/a", "g/4/b", "g/5/c", "g/9/idle"]
    await log.book.trim([(tags.rsm_machine("g", "idle"), await log.book.now())])
    assert refs(await listing(log, "g", Wanted())) == ["g/3/a", "g/4/b", "g/5/c"], "it was forgotten"


async def test_what_this_program_cannot_read_is_reported_once_beside_all_others(log: Log) -> None:
    streams = tuple(tags.rsm_partition("g", one) for one in (4, 6, 7))
    await log.append(Contribution(streams, {}, (Newer("g/4/b"),)))
    found = await listing(log, "g", Wanted())
    assert refs(found) == ["g/3/a", "g/5/c"] and len(found.unreadable) == 1
    assert len((await listing(log, "g", Wanted(faulted=True))).unreadable) == 1, "one of them may have a fault"
