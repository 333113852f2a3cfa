"""`boki log verify` on real processes: a whole log is reported as such, and what is missing is found."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import boki
from boki_cli.demo.local_cluster import LocalCluster
from boki_cli.testing.logs import ONE_COPY, closed_data_ledger, snapshot_reaching
from boki_common.ids import slot_of
from boki_logbook.scan.verify import Report, Verifier, _Shard, _within
from boki_logbook.testing.cluster import RecordSpec, RunSpec, make_batch
from boki_metalog.entries.metalog_entry import Lost
from boki_metalog.terms.term_order import slot_mask
from itests.support.processes import throughout

if TYPE_CHECKING:
    from boki_cli.testing.commands import RunCommandLine

SETTINGS = ONE_COPY | {"BOKI_ENGINE_RECLAIM_GRACE_S": "0"}


def test_losers_of_an_entry_are_printed_relative_to_it() -> None:
    losers = [2, 5, 9, 12]
    assert list(_within(losers, 0, 20)) == [(2, 5), (9, 12)]
    assert list(_within(losers, 3, 10)) == [(0, 2), (6, 7)]
    assert list(_within(losers, 5, 9)) == [] == list(_within([], 0, 9))
    assert list(_within(losers, 4, 5)) == [(0, 1)]


def test_records_of_books_that_the_term_does_not_order_are_a_fault_unless_given_up() -> None:
    books = {slot_of(book) < 512: book for book in range(1, 40)}
    batch = make_batch(*(RunSpec(book, bytes(16), 1, (RecordSpec(),)) for book in books.values()))
    for given_up in ([], [Lost(7, 0, 3, 4, b"{}")]):
        verifier, report = Verifier(None, {}, set(), print), Report(0, 7, "sealed")  # type: ignore[arg-type]  # none is read
        verifier._slots = slot_mask([(0, 511)])
        verifier._payloads(report, 0, _Shard(100), 3, batch)
        verifier._given_up += given_up
        verifier.finish()
        if given_up:
            assert (report.lost, report.faults) == (1, [])
        else:
            (fault,) = report.faults
            assert "entry 3 of shard 0 of term 7 has 1 records" in fault and f"book {books[False]} of slot" in fault


class Cluster:
    """One bookie, a sequencer and an engine, and command lines on them."""

    def __init__(self, processes: LocalCluster, run: RunCommandLine) -> None:
        self.numbers = 0
        self._processes = processes
        self._run = run

    def verify(self, *, code: int = 0) -> tuple[list[dict[str, Any]], str]:
        arguments = ("log", "verify", "--json", "--metadata", self._processes.metadata_uri)
        done = self._run(*arguments)
        assert done.code == code, (done.out, done.err)
        return [json.loads(line) for line in done.out.splitlines()], done.err

    def command(self, *arguments: str) -> str:
        done = self._run(*arguments, "--metadata", self._processes.metadata_uri)
        assert done.code == 0, (arguments, done.out, done.err)
        return done.out

    async def append(self) -> None:
        """Plain records, one under a number that was used before, and a conditional one that loses."""
        async with boki.connect(self._processes.url) as client:
            book = client.book("orders")
            for number in range(1, 4):
                await book.append(b"%d" % number, tags=["a"], writer=("w", self.numbers + number))
            await book.append(b"1", tags=["a"], writer=("w", self.numbers + 1))
            self.numbers += 3
            with pytest.raises(boki.Conflict):
                await book.append(b"late", tags=["a"], expect={"a": None})


@pytest.mark.processes
@pytest.mark.timeout(90)
def test_a_whole_log_is_proved_and_a_hole_is_found(tmp_path: Path, run_boki: RunCommandLine) -> None:
    with (
        throughout(LocalCluster(tmp_path, bookies=1, sequencers=1, engines=1, settings=SETTINGS)) as processes,
        asyncio.Runner() as runner,
    ):
        cluster = Cluster(processes, run_boki)
        runner.run(cluster.append())
        cluster.command("log", "roll", "0")
        runner.run(snapshot_reaching(processes.metadata_uri, 1))
        runner.run(cluster.append())
        reports, _ = cluster.verify()
        first, second = reports
        assert (first["state"], first["verdicts"], first["records"], first["faults"]) == ("sealed", "equal", 5, [])
        assert (second["state"], second["faults"]) == ("current", []) and 3 <= second["records"] <= 5
        assert (second["verdicts"], second["why"]) == ("unknown", "no index snapshot reaches it yet")
        assert first["positions"] == 5 and first["digest"] != "0" * 16
        table = cluster.command("log", "verify")
        assert "equal" in table and "not compared: no index snapshot" in table

        data = runner.run(closed_data_ledger(processes.metadata_uri))
        cluster.command("ledger", "delete", str(data), "--yes", "--force")
        reports, fault = cluster.verify(code=1)
        assert reports[0]["faults"] and f"ledger {data}" in fault
