"""The bank of `examples.banking` in a chaos run: its hosts, clients that ask for transfers, and what the log has to say about both.

| role | does, and notes |
|---|---|
| `bank` | a host of the machines: accounts, and a broker for each task of a client |
| `pay` | asks for transfers, each until it is answered |

The log is the judge, as in `checks`: `BankLogged` folds it record by record, by the events of `bokirsm` alone, and counts all money after
each: what accounts have, and what messages carry that no machine took yet.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Final, NamedTuple

import msgspec

import boki
from bokirsm import Host, Ref, Rsm
from bokirsm.model.events import SAME_RECORD, AnyEvent, Commit, Faulted, Message, MessageId, messages_of
from examples.banking.app import BANK, Account, AccountEvents, Balance, Broker, Open, Transfer
from examples.machine_hosts import repeated
from itests.chaos.notes import Notes

BOOK: Final = "chaos-bank"
ACCOUNTS: Final = 5
OPENING: Final = 1_000
MOST_CENTS: Final = 600
PAYERS: Final = 3
"""Tasks of a client that ask for transfers at the same time."""
LEASE_S: Final = 4.0
ASK_S: Final = 8.0
CARRIERS: Final = frozenset({"Withdrawn", "Deposit", "Full"})
"""Events that carry money."""


async def open_accounts(rsm: Rsm) -> dict[str, Ref[AccountEvents]]:
    """Create the accounts, or find them."""
    keys = [f"account-{number}" for number in range(1, ACCOUNTS + 1)]
    return {key: await repeated(partial(rsm.create, Account, Open(OPENING), key=key)) for key in keys}


async def host(book: boki.Book, name: str, stop: asyncio.Event) -> None:
    """Run machines until `stop` is set."""
    async with Host(BANK, book, name=name, lease_s=LEASE_S):
        await stop.wait()


async def pay(book: boki.Book, name: str, notes: Notes, stop: asyncio.Event) -> None:
    """Several tasks that ask for transfers, each with a broker of its own. A transfer is `BROKER:NUMBER`."""
    async with Rsm(BANK, book) as rsm, asyncio.TaskGroup() as group:
        accounts = await open_accounts(rsm)

        async def transfers(task: int) -> None:
            key, number = f"{name}-{task}", 0
            chance = random.Random(key)
            broker = await repeated(partial(rsm.create, Broker, key=key))
            while not stop.is_set():
                number += 1
                source, target = chance.sample(sorted(accounts), 2)
                question = Transfer(number, accounts[source], accounts[target], chance.randint(1, MOST_CENTS))
                notes.note("pay?", f"{key}:{number}")
                outcome = await repeated(partial(rsm.ask, question.to(broker), timeout_s=ASK_S))
                notes.note("pay!", f"{key}:{number}", outcome.replace(" ", "-"))
                await asyncio.sleep(chance.random() * 0.1)

        for task in range(PAYERS):
            group.create_task(transfers(task))


async def balances(rsm: Rsm) -> dict[str, int]:
    """Return the money of each account, as the machines say."""
    accounts = await open_accounts(rsm)
    return {key: await repeated(partial(rsm.ask, Balance().to(one))) for key, one in accounts.items()}


# -- what the log has


class Done(NamedTuple):
    """A transfer that came to its end."""

    source: str
    target: str
    cents: int
    outcome: str


class BankLogged:
    """Money, messages and commits of the bank in the log; see the module.

    Attributes:
        waiting: messages that no machine took, by id.
        balances: of accounts, by key.
        ends: how often a transfer came to its end.
        done: transfers that came to their end.
        faults: sentences.
    """

    def __init__(self) -> None:
        self.waiting: Final[dict[MessageId, Message]] = {}
        self.balances: Final[dict[str, int]] = {}
        self.ends: Final[Counter[str]] = Counter()
        self.done: Final[dict[str, Done]] = {}
        self.faults: Final[list[str]] = []
        self._commits: Final[Counter[str]] = Counter()
        self._brokers: Final[dict[str, dict[str, Any]]] = defaultdict(dict)

    def take(self, seqnum: int, events: Sequence[AnyEvent]) -> None:
        """The next record, with its events of machines."""
        for number, message in messages_of(events):
            self.waiting[MessageId(seqnum, number)] = message
        for event in events:
            if isinstance(event, Faulted):
                self.faults.append(f"machine {event.id} failed at {seqnum}: {event.error}")
            elif isinstance(event, Commit):
                self._commit(seqnum, event)
        total, expected = self.money(), OPENING * ACCOUNTS
        if len(self.balances) == ACCOUNTS and total != expected and not any("cents" in fault for fault in self.faults):
            self.faults.append(f"at {seqnum} the bank has {total} cents, expected {expected}")

    def money(self) -> int:
        """Return all cents, in accounts and in messages."""
        return sum(self.balances.values()) + sum(_cents(message) for message in self.waiting.values())

    def _commit(self, seqnum: int, commit: Commit) -> None:
        for took in commit.took:
            id = MessageId(seqnum, took.number) if took.seqnum == SAME_RECORD else took
            if self.waiting.pop(id, None) is None:
                self.faults.append(
                    f"machine {commit.id} took message {id} at {seqnum}, which was taken before or never sent"
                )
        name = commit.id.split("/", 2)[2]
        if commit.k:
            self._commits[name] += 1
            if commit.k != self._commits[name]:
                self.faults.append(f"commit {commit.k} of {commit.id} at {seqnum} is its {self._commits[name]}th")
        if "balance" in commit.registers:
            self.balances[name] = msgspec.msgpack.decode(commit.registers["balance"])
        if "pay-" in name:
            broker = self._brokers[name]
            broker.update({field: msgspec.msgpack.decode(value) for field, value in commit.registers.items()})
            if commit.state == "idle" and "number" in broker:
                self._ended(f"{name}:{broker['number']}", broker["newest"], broker["outcome"])

    def _ended(self, id: str, transfer: Mapping[str, Any], outcome: str) -> None:
        source, target = (str(transfer[one]).split("/", 2)[2] for one in ("source", "target"))
        self.ends[id] += 1
        self.done[id] = Done(source, target, transfer["cents"], outcome.replace(" ", "-"))


def _cents(message: Message) -> int:
    return int(msgspec.msgpack.decode(message.body)["cents"]) if message.event in CARRIERS else 0


def check(bank: BankLogged, asked: Sequence[str], answered: Mapping[str, str], read: Mapping[str, int]) -> list[str]:
    """Return what is wrong at the end, as sentences.

    Args:
        bank: what the log has.
        asked: transfers that clients were about to ask for.
        answered: the outcomes that clients got, by transfer.
        read: the balances that a program reads now.
    """
    found = list(bank.faults)
    found += [f"transfer {id} ended {count} times" for id, count in bank.ends.items() if count > 1]
    found += [f"transfer {id} ended, and no client asked for it" for id in bank.done.keys() - asked]
    for id, outcome in answered.items():
        logged = bank.done[id].outcome if id in bank.done else "not done"
        if outcome != logged:
            found.append(f"the client of transfer {id} was told {outcome}, in the log it is {logged}")
    expected = dict.fromkeys(bank.balances, OPENING)
    for one in bank.done.values():
        if one.outcome == "done":
            expected[one.source] -= one.cents
            expected[one.target] += one.cents
    for key, cents in bank.balances.items():
        if not cents == expected[key] == read.get(key):
            found.append(
                f"{key} has {cents} cents in the log, {expected[key]} by its transfers, and reads {read.get(key)}"
            )
    found += [f"a message waits for {message.to}: {message.event}" for message in bank.waiting.values()]
    return found
