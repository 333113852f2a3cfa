"""The bank under the tester: clients that transfer money and audits, at the same time.

.venv/bin/python -m pytest examples/test_tested.py -k bank
"""

from __future__ import annotations

from typing import Any, Final

from bokirsm import App, Machine, Ref
from bokirsm.testing import Monitor, Program, TestRsm
from examples.banking import app
from examples.banking.app import (
    Account,
    AccountEvents,
    BrokerEvents,
    Deposit,
    Deposited,
    Full,
    Open,
    Transfer,
    Withdraw,
)
from examples.banking.audit import Audit, Auditor, Members, Peers

OPENINGS: Final = (100, 50, app.LIMIT)
TOTAL: Final = sum(OPENINGS)
CENTS: Final = (30, 80)


class NoMoneyIsMade(Monitor, observes=(Withdraw, Deposit)):
    """The accounts never have more than all money, none less than nothing, and at the end they have all of it."""

    def committed(self, machine: object) -> None:
        balances = [one.balance for one in self.machines(Account)]
        assert min(balances, default=0) >= 0 and sum(balances) <= TOTAL, f"the accounts have {balances}"

    def ended(self) -> None:
        balances = [one.balance for one in self.machines(Account)]
        assert sum(balances) == TOTAL, f"the accounts have {balances} at the end"


class DepositsEnd(Monitor, observes=(Deposit, Deposited, Full)):
    """Each deposit is answered."""

    def __init__(self) -> None:
        self.open = 0

    def sent(self, event: object, to: object) -> None:
        self.open += 1 if isinstance(event, Deposit) else -1
        if self.open:
            self.hot(f"{self.open} deposits have no answer")
        else:
            self.cold()


def bank(broker: type[Machine[Any]] = app.Broker, *, audits: bool = True) -> Program:
    """Return the bank as the subject of a test. `broker`: the class of the machines that transfer. `audits`: they take part in audits."""

    async def audit(rsm: TestRsm, auditor: Ref[Members | Audit]) -> None:
        assert await rsm.ask(Audit().to(auditor)) == TOTAL

    async def transfers(rsm: TestRsm, client: Ref[BrokerEvents], accounts: list[Ref[AccountEvents]]) -> None:
        for number in (1, 2):
            source = rsm.choose(accounts)
            target = rsm.choose([one for one in accounts if one != source])
            question = Transfer(number, source, target, rsm.choose(CENTS)).to(client)
            assert await rsm.ask(question) == await rsm.ask(question)

    async def main(rsm: TestRsm) -> None:
        auditor = await rsm.create(Auditor, key="auditor")
        accounts = [await rsm.create(Account, Open(cents), key=f"account-{at}") for at, cents in enumerate(OPENINGS)]
        brokers = [await rsm.create(broker, key=f"client-{number}") for number in (1, 2)]
        await rsm.send_many([(one, Peers([*brokers], auditor)) for one in accounts])
        await rsm.send_many([(one, Peers([*accounts], auditor)) for one in brokers])
        await rsm.send(auditor, Members([*accounts, *brokers]))
        for one in brokers:
            rsm.start(transfers(rsm, one, accounts))
        if audits:
            rsm.start(audit(rsm, auditor))

    return Program(App("bank", [Account, broker, Auditor]), main, [NoMoneyIsMade, DepositsEnd])
