"""What logs gave up is read from their metalogs; what cannot be read of them is reported, and hides nothing else."""

from __future__ import annotations

from typing import Any

from boki_cli.logs.log_losses import lines, losses_of
from boki_logbook.scan.metalogs import Term
from boki_metalog.entries.loss_evidence import LossEvidence, encode_evidence
from boki_metalog.entries.metalog_entry import Close, Lost, MetalogEntry, ShardEnd, encode

FIRE = Lost(
    1, 0, 4, 6, encode_evidence(LossEvidence(ledger=9, first=4, stop=6, reason="a fire", by="ops")), indexed=True
)
DAMAGED = Lost(1, 2, 0, 1, b"garbage")
NOTHING = encode(MetalogEntry(0, 0, 5, (ShardEnd(0, 0, 0),)))


def with_commands(*commands: Lost | Close) -> bytes:
    return encode(MetalogEntry(0, 0, 5, (ShardEnd(0, 0, 0),), commands))


class Ledgers:
    """The ledger client, as far as metalogs are read."""

    def __init__(self, **metalogs: list[bytes]) -> None:
        self.metalogs = {int(name.removeprefix("m")): entries for name, entries in metalogs.items()}

    async def open(self, ledger_id: int, *, recover: bool) -> Any:
        assert not recover
        return Reader(self.metalogs[ledger_id])


class Reader:
    def __init__(self, entries: list[bytes]) -> None:
        self.entries = entries

    async def read_lac(self) -> int:
        return len(self.entries) - 2  # the newest is known a moment later

    async def read(self, first: int, last: int) -> list[memoryview]:
        return [memoryview(one) for one in self.entries[first : last + 1]]

    async def close(self) -> None: ...


def term(number: int, metalog: int, end: int | None, *, reclaimed: bool = False) -> Term:
    return Term(0, number, metalog, end, None, reclaimed, (), None)


async def test_losses_of_all_terms_are_listed_oldest_first_and_what_cannot_be_read() -> None:
    ledgers = Ledgers(
        m11=[NOTHING, with_commands(FIRE, Close(0))],
        m12=[b"garbage", NOTHING],
        m13=[with_commands(DAMAGED), NOTHING],
        m14=[],
    )
    terms = [term(1, 11, 2), term(2, 12, 2), term(3, 13, None), term(4, 14, 0, reclaimed=True)]
    found, faults = await losses_of(ledgers, terms)  # type: ignore[arg-type]
    assert [(one["shard"], one["first"], one["stop"], one["ordered_in"]) for one in found] == [
        (0, 4, 6, {"term": 1, "entry": 1}),
        (2, 0, 1, {"term": 3, "entry": 0}),
    ]
    (fault,) = faults
    assert fault.startswith("not all of the metalog of term 2 can be read")
    head, why, *_ = lines(found[0])
    assert head == "entries 4 to 5 of shard 0 of term 1 are lost, by entry 1 of the metalog of term 1: their rows stand"
    assert why == "  given up by ops: a fire"
    assert found[1]["evidence"]["begins"] == "garbage" and "cannot be read" in lines(found[1])[1]
