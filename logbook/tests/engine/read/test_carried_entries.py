"""Entries that a metalog carries, looked for when their data ledger does not have them."""

from __future__ import annotations

from boki_common.ids import seqnum
from boki_logbook.index.places import EntryPlace, ShardPlace
from boki_logbook.read.carried_entries import READ_ENTRIES, CarriedEntries, Metalog
from boki_logbook.testing.cluster import RunSpec, ScriptedLog, make_batch, model_ledgers, plain_records
from boki_metalog.entries.progress import CutBuilder

METALOG = 1_001


class World:
    """The metalog of a term with shards 0 and 1; shard 1 carries each of its entries but the first."""

    def __init__(self) -> None:
        self.ledgers = model_ledgers()
        self.log = ScriptedLog()
        self.ledgers.entries_elsewhere = self.log.metalog
        self.history = self.log.history[1] = []
        self.builder = CutBuilder()
        for ledger_id in (10, 11):
            self.builder.open(f"{ledger_id:032x}", ledger_id)
        self.cut()
        self.ends = [0, 0]
        self.carried = CarriedEntries(
            self.ledgers,
            metalog=lambda term: Metalog(METALOG, len(self.history)) if term == 1 else None,
            shards=lambda _: {0: ShardPlace(1, 0, 10, ""), 1: ShardPlace(1, 1, 11, "")},
        )

    def cut(self) -> None:
        entry = self.builder.take(1)
        assert entry is not None
        self.history.append(entry)

    def ordered(self, shard: int) -> None:
        """The next entry of a shard, reported."""
        self.ends[shard] += 1
        self.builder.report(shard, self.ends[shard], self.ends[shard])
        self.cut()

    def carry(self, shard: int, body: bytes = b"") -> None:
        """The next entry of a shard, carried; its bytes tell its number."""
        self.ends[shard] += 1
        self.builder.carry(shard, self.ends[shard], self.ends[shard], body or b"entry %d" % (self.ends[shard] - 1))
        self.cut()


async def test_what_is_asked_for_is_found_among_entries_of_other_shards() -> None:
    world = World()
    world.ordered(1)
    for _ in range(5):
        world.carry(1)
        world.carry(0) if world.ends[0] else world.ordered(0)
    assert await world.carried.find(1, 1, 3, 6) == {number: b"entry %d" % number for number in (3, 4, 5)}
    assert await world.carried.find(1, 1, 2, 3) == {2: b"entry 2"}
    assert await world.carried.find(1, 1, 0, 2) == {1: b"entry 1"}, "the first one was not carried"
    assert await world.carried.find(1, 1, 4, 4) == {}
    assert await world.carried.find(2, 1, 0, 9) == {}, "of a term that nobody knows"


async def test_a_shard_that_is_closed_long_ago_is_found_and_nothing_before_it_is_read() -> None:
    world = World()
    for _ in range(3 * READ_ENTRIES):
        world.ordered(0)
    world.ordered(1)
    world.carry(1)
    world.builder.close(1)
    world.cut()
    for _ in range(2 * READ_ENTRIES):
        world.ordered(0)
    assert await world.carried.find(1, 1, 1, 2) == {1: b"entry 1"}
    assert len(world.ledgers.reads) == 3
    assert all(reader.ended for reader in world.ledgers.readers)


async def test_where_a_shard_ended_is_looked_for_once() -> None:
    world = World()
    world.ordered(0)
    world.ordered(1)
    world.carry(1)
    world.builder.close(1)
    world.cut()
    for _ in range(20 * READ_ENTRIES):
        world.ordered(0)
    found = []
    for _ in range(3):
        before = len(world.ledgers.reads)
        assert await world.carried.find(1, 1, 1, 2) == {1: b"entry 1"}
        found.append(len(world.ledgers.reads) - before)
    assert found == [21, 1, 1]
    assert await world.carried.find(1, 0, 0, 5 * READ_ENTRIES) == {}
    assert list(world.carried._ends) == [(1, 1)], "the other one may still come"


async def test_an_entry_at_a_place_is_found_by_its_position_in_few_steps() -> None:
    world, carried = World(), {}
    world.ordered(0)
    world.ordered(1)
    for _ in range(500):
        world.ordered(0)
        pos = world.history[-1].end_pos
        world.carry(1, b"".join(make_batch(RunSpec(1, bytes(16), 2, plain_records("x"))).at(1, 1, world.ends[1])))
        carried[world.ends[1] - 1] = pos
    for entry in (1, 250, 500):
        before = len(world.ledgers.reads)
        place = EntryPlace(11, entry, seqnum(1, carried[entry]), seqnum(1, carried[entry] + 1), 0)
        batch = await world.carried.batch_at(place)
        assert batch is not None and batch.first_local_id == entry
        assert len(world.ledgers.reads) - before <= 11
        missed = place._replace(first_seqnum=seqnum(1, carried[entry] - 1))
        assert await world.carried.batch_at(missed) is None, "an entry that is not carried"
    assert await world.carried.batch_at(place._replace(first_seqnum=seqnum(1, 5_000))) is None


async def test_an_entry_at_a_place_is_read_as_a_batch() -> None:
    world = World()
    world.ordered(1)
    world.carry(1, b"".join(make_batch(RunSpec(1, bytes(16), 2, plain_records("x"))).at(1, 1, 1)))
    place = EntryPlace(11, 1, seqnum(1, 1), seqnum(1, 2), 0)
    batch = await world.carried.batch_at(place)
    assert batch is not None
    assert (batch.term, batch.shard, batch.runs[0].first) == (1, 1, 2)
    assert await world.carried.batch_at(place._replace(entry=0)) is None
    assert await world.carried.batch_at(place._replace(ledger_id=12)) is None


async def test_a_metalog_that_cannot_be_read_has_nothing_now() -> None:
    world = World()
    world.ordered(1)
    world.carry(1, b"no batch")
    place = EntryPlace(11, 1, seqnum(1, 1), seqnum(1, 2), 0)
    assert await world.carried.batch_at(place) is None
    world.ledgers.missing[METALOG, 0] = None
    assert await world.carried.batch_at(place) is None
