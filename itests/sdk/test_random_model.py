"""Random programs against a list of records: whatever is done, every read agrees with the list."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import pytest

import boki
from itests.support.sdk_client import collect

TAGS: tuple[str | int, ...] = ("a", "b", "ä", 1, 2**64 - 2)
STEPS = 250


@dataclass
class Plain:
    """A book as a list of (seqnum, tags, data)."""

    records: list[tuple[int, tuple[str | int, ...], bytes]] = field(default_factory=list)

    def stream(self, tag: str | int | None) -> list[tuple[int, tuple[str | int, ...], bytes]]:
        return [record for record in self.records if tag is None or tag in record[1]]

    def newest(self, tag: str | int | None) -> int | None:
        return next((record[0] for record in reversed(self.stream(tag or None))), None)


def plain(record: boki.Record | None) -> tuple[int, tuple[str | int, ...], bytes] | None:
    return None if record is None else (record.seqnum, record.tags, record.data)


async def one_step(rng: random.Random, book: boki.Book, model: Plain, number: int) -> None:
    tag = rng.choice((None, *TAGS))
    bound = rng.choice([record[0] for record in model.records] or [1]) + rng.choice((-1, 0, 0, 1))
    stream = model.stream(tag)
    match rng.randrange(8):
        case 0 | 1:
            tags = tuple(rng.sample(TAGS, rng.randrange(4)))
            model.records.append((await book.append(b"%d" % number, tags=tags), tags, b"%d" % number))
        case 2:
            given = [(b"%d/%d" % (number, part), tuple(rng.sample(TAGS, rng.randrange(3)))) for part in range(5)]
            for seqnum, (data, tags) in zip(await book.append_many(given), given, strict=True):
                model.records.append((seqnum, tags, data))
        case 3:
            await conditional(rng, book, model, number)
        case 4:
            expected = next((record for record in stream if record[0] >= bound), None)
            assert plain(await book.read_next(tag, at_least=bound)) == expected
        case 5:
            seen = await book.now()
            if bound > seen:
                with pytest.raises(boki.InvalidArgument):
                    await book.read_prev(tag, at_most=bound)
            bound = min(bound, seen)
            expected = next((record for record in reversed(stream) if record[0] <= bound), None)
            assert plain(await book.read_prev(tag, at_most=bound)) == expected
        case 6:
            stop = bound + rng.randrange(20)
            found = [plain(record) for record in await collect(book.read(tag, start=bound, stop=stop))]
            assert found == [record for record in stream if bound <= record[0] < stop]
        case _:
            bound = min(bound, await book.now())
            queries = [(tag, bound) for tag in (None, *TAGS)]
            expected_many = [
                next((record for record in reversed(model.stream(tag)) if record[0] <= bound), None)
                for tag, _ in queries
            ]
            assert [plain(record) for record in await book.read_prev_many(queries)] == expected_many


async def conditional(rng: random.Random, book: boki.Book, model: Plain, number: int) -> None:
    tags = tuple(rng.sample(TAGS, rng.randrange(3)))
    expect: dict[str | int, int | None] = {}
    for key in rng.sample((0, *TAGS), rng.randrange(1, 4)):
        expect[key] = rng.choice(
            (None, model.newest(key), book.position, rng.choice(model.records)[0] if model.records else None)
        )
    holds = all((model.newest(key) or 0) <= (allowed or 0) for key, allowed in expect.items())
    try:
        seqnum = await book.append(b"%d" % number, tags=tags, expect=expect)
    except boki.Conflict as conflict:
        assert not holds
        for key, newest in conflict.actual.items():
            assert newest == model.newest(key)
    else:
        assert holds
        model.records.append((seqnum, tags, b"%d" % number))


@pytest.mark.parametrize("seed", range(3))
async def test_random_programs(client: boki.Client, name: str, seed: int) -> None:
    rng = random.Random(seed)
    books = [(client.book(f"{name} {number}"), Plain()) for number in range(2)]
    for number in range(STEPS):
        book, model = rng.choice(books)
        await one_step(rng, book, model, number)
    for book, model in books:
        for tag in (None, *TAGS):
            assert [plain(record) for record in await collect(book.read(tag))] == model.stream(tag)
