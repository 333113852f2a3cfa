"""The checks of a chaos run find what is planted; every night a minute of it holds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

import pytest

from bokiflow.model.flow_events import Ended, Started, Transacted
from bokiflow.model.outcomes import Outcome
from bokilib.records.events import Event, encode, open_record
from bokiqueue.model.events import Item, Pushed
from bokiqueue.model.items import item_of
from bokistore.model.events import Commit
from bokistore.model.operations import Inc, Set
from itests.chaos.app import ACCOUNTS, OPENING
from itests.chaos.checks import Last, Logged, Told, check, result_of
from itests.chaos.strikes import kind_of
from itests.chaos.trial import trial
from itests.support.fixtures import skip_or_fail
from itests.support.java_server import ServerMissing

NOTES: Final = """
push? s/1 k
push! s/1
push? s/2 k
push! s/2
push? s/3 -
start? deliver/s/2
start! deliver/s/2
signal? deliver/s/2
result! deliver/s/2 box_of_s/2_to_address_of_s/2
move? t/1
move! t/1
move? t/2
move-refused t/2
web? w/1
web! w/1 100
""".strip().splitlines()

Lines = Sequence[str]
Records = list[list[Event]]


def inc(name: str, cents: int = 1) -> Commit:
    return Commit(name, (Inc("n", cents),), 0)


def receipt(order: str) -> Pushed:
    item: Item = item_of(order)
    return Pushed("receipts/0", (item,))


def records() -> Records:
    """What the log has when all is well."""
    id = "deliver/s/2"
    return [
        [Commit(name, (Set("cents", OPENING),), 0) for name in ACCOUNTS],
        [inc("order/s/1"), receipt("s/1")],
        [Started(id, "deliver", "d", [], 0)],
        [inc("order/s/2"), receipt("s/2")],
        [inc("sale/s/2"), Transacted(id, "2", "book_sale", "d", 0, Outcome(5), 0)],
        [Commit(ACCOUNTS[0], (Inc("cents", -7),), 0), Commit(ACCOUNTS[1], (Inc("cents", 7),), 0), inc("move/t/1")],
        [Ended(id, 1, "deliver", "d", Outcome(result_of(id)), 0)],
    ]


def found(
    lines: Lines = NOTES, log: Records | None = None, web: list[tuple[int, str]] | None = None, waiting: int = 0
) -> list[str]:
    told, logged = Told(), Logged()
    for line in lines:
        told.take(line)
    for seqnum, events in enumerate(records() if log is None else log, 1):
        logged.take(seqnum, open_record(seqnum, encode("p", 0, events)))
    values = {name: view.value for name, view in logged.views.items()}
    return check(told, logged, [(100, "w/1")] if web is None else web, Last(values, waiting, []))


def test_a_run_in_which_all_is_well_has_no_faults() -> None:
    assert found() == []


def without(place: int) -> Records:
    return [events for at, events in enumerate(records()) if at != place]


def swapped() -> Records:
    log = records()
    log[1], log[3] = log[3], log[1]
    return log


LOST_UPDATE: Final[list[Event]] = [Commit(ACCOUNTS[0], (Set("cents", OPENING),), 0)]


@pytest.mark.parametrize(
    ("look", "fault"),
    [
        (lambda: found(log=without(1)), "order s/1 was acknowledged, and did not happen"),
        (lambda: found(log=[*records(), records()[1]]), "order s/1 happened 2 times"),
        (
            lambda: found(log=[*records(), [inc("order/x"), receipt("x")]]),
            "order x happened, and no caller asked for it",
        ),
        (lambda: found(log=[*records(), [receipt("s/1")]]), "orders and receipts of one record differ"),
        (lambda: found(log=swapped()), "order s/2 was handled before s/1"),
        (lambda: found(waiting=3), "3 orders wait still"),
        (lambda: found(log=without(5)), "move t/1 was acknowledged, and did not happen"),
        (lambda: found(log=[*records(), [inc("move/t/2")]]), "move t/2 was refused, and happened"),
        (lambda: found(log=[*records(), LOST_UPDATE]), "accounts have 6007 together, expected 6000"),
        (lambda: found(log=without(6)), "workflow deliver/s/2 (deliver) did not end"),
        (lambda: found(log=[*records(), records()[6]]), "workflow deliver/s/2 ended 2 times"),
        (lambda: found(log=[*records(), records()[4]]), "step 2 of workflow deliver/s/2 has 2 outcomes"),
        (lambda: found(log=without(4)), "the sale of s/2 happened 0 times"),
        (lambda: found(lines=[*NOTES, "result! deliver/s/2 other"]), "a caller was told that workflow deliver/s/2"),
        (lambda: found(web=[]), "append w/1 was acknowledged, and did not happen"),
        (lambda: found(web=[(101, "w/1")]), "append w/1 is at 101, its caller was told 100"),
        (lambda: found(web=[(100, "w/1"), (102, "w/3")]), "append w/3 comes after number 1 of its writer"),
    ],
)
def test_what_is_wrong_is_said(look: Callable[[], list[str]], fault: str) -> None:
    said = look()
    assert any(fault in one for one in said), said


def test_places_are_of_the_kind_that_their_names_say() -> None:
    assert [kind_of(name) for name in ("bookie-2", "work-1", "gateway-1", "zookeeper")] == [
        "bookie",
        "work",
        "gateway",
        "zookeeper",
    ]


@pytest.mark.nightly
@pytest.mark.processes
@pytest.mark.zookeeper
@pytest.mark.alone
@pytest.mark.timeout(600)
async def test_a_minute_of_kills_and_stops_breaks_no_promise(tmp_path: Path) -> None:
    try:
        done = await trial(tmp_path, seconds=60, seed=1)
    except ServerMissing as error:
        skip_or_fail("zookeeper", str(error))
    assert done.faults == []
    assert min(done.did.values()) > 10, done.did
