"""Written in term k, read in k + 1 … k + 20, with slots moved and everything restarted between: equal rows, equal verdicts."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

import boki
from boki_cli.demo.local_cluster import LocalCluster
from itests.logbooks.administration import Administrator, Row, administrator, rows_of

pytestmark = [pytest.mark.processes, pytest.mark.timeout(240)]

BOOKS = tuple(f"book-{number}" for number in range(8))
RECORDS = 6
"""To each book in each term."""


class Written:
    """What was answered to every append; answers again what is asked again."""

    def __init__(self) -> None:
        self.rows: dict[str, list[Row]] = {name: [] for name in BOOKS}
        self.numbered: dict[tuple[str, int], tuple[int, bytes]] = {}
        self.lost: list[tuple[str, bytes]] = []

    async def more(self, client: boki.Client, term: int) -> None:
        """Plain appends, appends of a named writer, and conditional ones of which one loses, to each book."""
        for name in BOOKS:
            book = client.book(name)
            for number in range(RECORDS):
                data, tags = b"%d/%d" % (term, number), ("all", f"term/{term % 3}")
                self.rows[name].append((await book.append(data, tags=tags), data, tags))
            data, number = b"%d/named" % term, term + 1
            seqnum = await book.append(data, tags=("all",), writer=("w", number))
            self.rows[name].append((seqnum, data, ("all",)))
            self.numbered[name, number] = seqnum, data
            winner = b"%d/winner" % term
            seqnum = await book.append(winner, tags=("all",), expect={"all": seqnum})
            with pytest.raises(boki.Conflict) as lost:
                await book.append(b"%d/loser" % term, tags=("all",), expect={"all": self.rows[name][-1][0]})
            assert lost.value.actual == {"all": seqnum}
            self.rows[name].append((seqnum, winner, ("all",)))

    async def check(self, client: boki.Client) -> None:
        """Everything is there, by book and by tag; who asks again gets the first answer."""
        found = await rows_of(client, BOOKS)
        assert found == self.rows
        for name in BOOKS:
            book = client.book(name)
            for tag in ("term/0", "term/1", "term/2"):
                of_tag = [(one.seqnum, one.data, one.tags) async for one in book.read(tag=tag)]
                assert of_tag == [row for row in self.rows[name] if tag in row[2]]
        for (name, number), (seqnum, data) in self.numbered.items():
            again = await client.book(name).append(data, tags=("all",), writer=("w", number))
            assert again == seqnum, f"number {number} of the writer in {name} was answered {seqnum}, then {again}"


async def change(admin: Administrator, cluster: LocalCluster, chance: random.Random, term: int) -> None:
    """The next terms: rolled, moved, spread, or after a restart of everything."""
    if term % 5 == 4:
        await cluster.kill(*cluster.roles)
        await cluster.start()
        return
    if term % 5 == 1:
        await admin.changes.move(range(chance.randrange(512), chance.randrange(513, 1024)), to=chance.choice((0, 1)))
    elif term % 5 == 3:
        await admin.changes.spread({0: chance.randrange(1, 4), 1: chance.randrange(1, 4)})
    else:
        await admin.changes.roll(chance.choice((0, 1)))


@pytest.mark.parametrize("terms", [8, pytest.param(20, marks=pytest.mark.nightly)])
async def test_what_was_written_in_a_term_is_read_in_all_later_ones(tmp_path: Path, terms: int) -> None:
    chance = random.Random(7)
    written = Written()
    async with (
        LocalCluster(tmp_path, bookies=3, sequencers=3, engines=2) as cluster,
        administrator(cluster.metadata_uri) as admin,
    ):
        await admin.changes.add(1)
        await admin.changes.spread({0: 1, 1: 1})
        one, other = (f"boki://{cluster.address(f'engine-{number}')}" for number in (1, 2))
        for term in range(terms):
            async with boki.connect(chance.choice((one, other))) as client:
                await written.more(client, term)
            await change(admin, cluster, chance, term)
            if term % 7 == 6:
                async with boki.connect(chance.choice((one, other))) as client:
                    await written.check(client)
        for url in (one, other):
            async with boki.connect(url) as client:
                await written.check(client)
        assert (await admin.view()).next_term > terms
