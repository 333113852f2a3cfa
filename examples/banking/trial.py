"""A trial of the bank: clients ask for transfers and an auditor counts, while hosts are killed and stopped.

    result = await trial(directory, seconds=10, seed=7, say=print)
    result.faults                                   # sentences; [] if every promise holds

A client repeats a question that is not answered in time, under the same number, until it is answered.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

import boki
from bokirsm import Ref, Rsm
from examples.banking import app
from examples.banking.app import AccountEvents, Balance, BrokerEvents, Open, Transfer
from examples.banking.audit import Audit, Auditor, Members, Peers
from examples.banking.checks import OPENING, Answer, check
from examples.machine_hosts import SETTLE_S, TIMEOUT_S, repeated, running_hosts

ACCOUNTS: Final = 5
CLIENTS: Final = 6
MOST_CENTS: Final = 600
"""So much that some transfers find too little, or a full account."""
ASK_S: Final = 5.0
"""Time after which a client repeats a question."""
AUDIT_EVERY_S: Final = 0.2


class TrialResult(NamedTuple):
    """Result of a trial.

    Attributes:
        answers: to all transfers.
        audits: all money, once an audit.
        balances: of the accounts at the end, by key.
        struck: strikes by kind.
        faults: sentences; [] if every promise holds.
    """

    answers: list[Answer]
    audits: list[int]
    balances: dict[str, int]
    struck: Counter[str]
    faults: list[str]


class Bank:
    """The machines of the bank as a program outside sees them.

    Attributes:
        accounts: by key.
        brokers: by client.
        auditor: the auditor.
        answers: to all transfers so far.
        audits: all money, once an audit.
    """

    def __init__(
        self,
        rsm: Rsm,
        accounts: dict[str, Ref[AccountEvents]],
        brokers: dict[str, Ref[BrokerEvents]],
        auditor: Ref[Members | Audit],
    ) -> None:
        self.accounts: Final = accounts
        self.brokers: Final = brokers
        self.auditor: Final = auditor
        self.answers: Final[list[Answer]] = []
        self.audits: Final[list[int]] = []
        self._rsm: Final = rsm

    @classmethod
    async def open(cls, rsm: Rsm) -> Bank:
        """Create the machines, and tell them of each other."""
        auditor = await rsm.create(Auditor, key="auditor")
        accounts: dict[str, Ref[AccountEvents]] = {}
        for key in (f"account-{number}" for number in range(1, ACCOUNTS + 1)):
            accounts[key] = await rsm.create(app.Account, Open(OPENING), key=key)
        brokers: dict[str, Ref[BrokerEvents]] = {}
        for key in (f"client-{number}" for number in range(1, CLIENTS + 1)):
            brokers[key] = await rsm.create(app.Broker, key=key)
        await rsm.send_many(
            [
                *((account, Peers([*brokers.values()], auditor)) for account in accounts.values()),
                *((broker, Peers([*accounts.values()], auditor)) for broker in brokers.values()),
                (auditor, Members([*accounts.values(), *brokers.values()])),
            ]
        )
        return cls(rsm, accounts, brokers, auditor)

    async def transfer(self, client: str, chance: random.Random, stop: asyncio.Event) -> None:
        """Ask for one random transfer after the other until `stop` is set. Ask each question once more: the answer is the same."""
        number = 0
        while not stop.is_set():
            number += 1
            (source, target), cents = chance.sample(list(self.accounts), 2), chance.randint(1, MOST_CENTS)
            transfer = Transfer(number, self.accounts[source], self.accounts[target], cents)
            ask = partial(self._rsm.ask, transfer.to(self.brokers[client]), timeout_s=ASK_S)
            outcome, again = await repeated(ask), await repeated(ask)
            self.answers.append(Answer(f"{client}/{number}", source, target, cents, outcome, again))

    async def audit(self, stop: asyncio.Event) -> None:
        """Count all money again and again until `stop` is set."""
        while not stop.is_set():
            self.audits.append(await repeated(partial(self._rsm.ask, Audit().to(self.auditor))))
            await asyncio.sleep(AUDIT_EVERY_S)

    async def balances(self) -> dict[str, int]:
        """Return the money of each account, once no transfer is on its way."""
        return {
            key: await repeated(partial(self._rsm.ask, Balance().to(account))) for key, account in self.accounts.items()
        }


async def trial(
    directory: Path,
    *,
    seconds: float = 10.0,
    seed: int = 1,
    hosts: int = 3,
    say: Callable[[str], None] = lambda _: None,
) -> TrialResult:
    """Run a trial; see the module.

    Raises:
        TimeoutError: the machines did not answer within SETTLE_S after the last strike.
    """
    stop = asyncio.Event()
    async with (
        running_hosts(directory, "examples.banking.host", count=hosts) as processes,
        boki.connect(processes.url, timeout=TIMEOUT_S) as client,
        Rsm(app.BANK, client.book(app.BOOK)) as rsm,
    ):
        bank = await Bank.open(rsm)
        await bank.balances()  # hosts run
        async with asyncio.timeout(seconds + SETTLE_S), asyncio.TaskGroup() as group:
            group.create_task(bank.audit(stop))
            for one in bank.brokers:
                group.create_task(bank.transfer(one, random.Random(f"{one} {seed}"), stop))
            await processes.strike(seconds=seconds, chance=random.Random(seed), say=say)
            stop.set()
        balances = await bank.balances()
    faults = processes.faults + check(bank.answers, bank.audits, balances)
    return TrialResult(bank.answers, bank.audits, balances, processes.struck, faults)
