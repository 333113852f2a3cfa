"""`boki drain`: it says why not, by name, and marks nothing then; a cancellation keeps the bookie."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from boki_cli.testing.bookies import BookieCluster
from boki_common.bookkeeper.bookie_mark import UNMARKED
from boki_common.bookkeeper.bookie_marks import read_mark
from boki_common.ids import BookieId

if TYPE_CHECKING:
    from boki_cli.testing.commands import RunCommandLine


@pytest.fixture
def bookie(bookies: BookieCluster) -> str:
    """Has a copy of a ledger that all three have."""
    found = bookies.bookies[0]
    assert found is not None

    async def fill() -> None:
        await bookies.ready()
        writer = await bookies.client.create()
        await writer.append(b"entry")
        await writer.close()

    bookies.run(fill())
    return found.bookie_id


@pytest.mark.parametrize("options", [(), ("--check",)])
def test_each_reason_is_named_and_nothing_is_marked(
    bookies: BookieCluster, bookie: str, run_boki: RunCommandLine, options: tuple[str, ...]
) -> None:
    found = run_boki("drain", bookie, *options, "--metadata", bookies.uri)
    assert found.code == 4
    assert f"bookie {bookie} cannot be drained" in found.err
    assert "too few bookies: expected another bookie of Boki" in found.err
    assert "no controller: no controller leads" in found.err
    assert bookies.run(read_mark(bookies.store, bookie)) == UNMARKED


def test_an_unknown_bookie_is_a_wrong_call(bookies: BookieCluster, run_boki: RunCommandLine) -> None:
    found = run_boki("drain", "nobody", "--metadata", bookies.uri)
    assert (found.code, "expected the id of a bookie" in found.err) == (2, True)


def test_a_drain_that_runs_is_cancelled_once(bookies: BookieCluster, bookie: str, run_boki: RunCommandLine) -> None:
    bookies.run(bookies.client.begin_drain(BookieId(bookie)))
    done = run_boki("drain", bookie, "--no-wait", "--metadata", bookies.uri)
    assert (done.code, "drains" in done.out) == (0, True), "it is not checked again: it may be refused by what it did"
    told = run_boki("drain", bookie, "--cancel", "--json", "--metadata", bookies.uri)
    assert json.loads(told.out) == {"bookie": bookie, "state": "active"}
    again = run_boki("drain", bookie, "--cancel", "--metadata", bookies.uri)
    assert (again.code, "no drain to cancel" in again.err) == (2, True)
