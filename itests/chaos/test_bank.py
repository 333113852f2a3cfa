"""The checks of the bank in a chaos run: nothing is wrong with the log of a bank in memory, and what is planted in it is found."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

import msgspec
import pytest

import boki
from boki.testing import MemoryCluster
from bokilib.append.log import Log
from bokirsm import Host, Rsm
from bokirsm.model.events import PICKER, AnyEvent, Commit, Faulted, MessageId
from examples.banking.app import BANK, Broker, Transfer
from itests.chaos.bank import BankLogged, balances, check, open_accounts

CLIENT: Final = "pay-1.1-0"


class Run(NamedTuple):
    """A short life of a bank.

    Attributes:
        records: the seqnum and the events of each record.
        told: outcomes by transfer, as the client was told.
        read: the balances that a program reads at the end.
    """

    records: list[tuple[int, list[AnyEvent]]]
    told: dict[str, str]
    read: dict[str, int]

    def faults(self) -> list[str]:
        logged = BankLogged()
        for seqnum, events in self.records:
            logged.take(seqnum, events)
        return check(logged, [f"{CLIENT}:{number}" for number in (1, 2, 3)], self.told, self.read)

    def with_events(self, change: Callable[[AnyEvent], list[AnyEvent]]) -> Run:
        """Replace each event by those that `change` returns."""
        changed = [(seqnum, [new for event in events for new in change(event)]) for seqnum, events in self.records]
        return self._replace(records=changed)


async def run_of_a_bank() -> Run:
    async with MemoryCluster() as cluster:
        book = (await cluster.connect()).book("b")
        async with Host(BANK, (await cluster.connect()).book("b")), Rsm(BANK, book) as rsm:
            accounts = list((await open_accounts(rsm)).values())
            broker = await rsm.create(Broker, key=CLIENT)
            told: dict[str, str] = {}
            for number, cents in enumerate((600, 600, 300), 1):
                outcome = await rsm.ask(Transfer(number, accounts[0], accounts[1], cents).to(broker))
                told[f"{CLIENT}:{number}"] = outcome.replace(" ", "-")
            read = await balances(rsm)
        log = Log(book)
        records: list[tuple[int, list[AnyEvent]]] = []
        async for item in book.read():
            assert isinstance(item, boki.Record)
            records.append((item.seqnum, list(PICKER.of(item.seqnum, await log.open(item)))))
    return Run(records, told, read)


async def test_a_bank_without_faults_has_none() -> None:
    run = await run_of_a_bank()
    assert run.faults() == []
    assert list(run.told.values()) == ["done", "too-little", "done"]
    assert list(run.read.values()) == [100, 1_900, 1_000, 1_000, 1_000]


def is_end(event: AnyEvent) -> bool:
    """Return whether a broker ends a transfer by this commit."""
    return isinstance(event, Commit) and event.state == "idle" and event.k > 1


def cheaper(event: AnyEvent) -> list[AnyEvent]:
    """Take a cent out of each balance that an account has after a withdrawal."""
    if isinstance(event, Commit) and "balance" in event.registers and event.k > 1:
        less = msgspec.msgpack.encode(msgspec.msgpack.decode(event.registers["balance"]) - 1)
        return [msgspec.structs.replace(event, registers={**event.registers, "balance": less})]
    return [event]


@pytest.mark.parametrize(
    ("plant", "fault"),
    [
        (
            lambda run: run.with_events(lambda one: [one, one] if is_end(one) else [one]),
            f"transfer {CLIENT}:1 ended 2 times",
        ),
        (
            lambda run: run.with_events(lambda one: [one, one] if is_end(one) else [one]),
            "which was taken before or never sent",
        ),
        (lambda run: run.with_events(lambda one: [one, one] if is_end(one) else [one]), "is its 5th"),
        (
            lambda run: run.with_events(lambda one: [] if is_end(one) else [one]),
            "was told done, in the log it is not done",
        ),
        (lambda run: run.with_events(lambda one: [] if is_end(one) else [one]), f"/{CLIENT}: Deposited"),
        (lambda run: run.with_events(cheaper), "cents, expected 5000"),
        (
            lambda run: run.with_events(cheaper),
            "account-1 has 99 cents in the log, 100 by its transfers, and reads 100",
        ),
        (lambda run: run._replace(read={**run.read, "account-3": 999}), "and reads 999"),
        (
            lambda run: run._replace(told={**run.told, f"{CLIENT}:2": "done"}),
            "was told done, in the log it is too-little",
        ),
        (
            lambda run: run._replace(told={**run.told, f"{CLIENT}:4": "done"}),
            "was told done, in the log it is not done",
        ),
        (
            lambda run: run._replace(
                records=[*run.records, (1 << 40, [Faulted("bank/1/x", MessageId(0, 0), "", "E", "why")])]
            ),
            "machine bank/1/x failed",
        ),
    ],
)
async def test_what_is_wrong_is_said(plant: Callable[[Run], Run], fault: str) -> None:
    said = plant(await run_of_a_bank()).faults()
    assert any(fault in one for one in said), said
