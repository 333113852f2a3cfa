"""Tests of the bank: transfers and audits in memory, the checks, and trials under kill -9 and SIGSTOP.

    .venv/bin/python -m pytest examples/test_banking.py -m "not processes"      # without the trials

A nightly test runs for a minute.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from boki.testing import MemoryCluster
from boki_common.testing.virtual_time import let_pass
from bokirsm import Host, Rsm
from examples.banking.app import BANK, BOOK, LIMIT, Transfer
from examples.banking.audit import Audit
from examples.banking.checks import OPENING, Answer, check
from examples.banking.trial import ACCOUNTS, Bank, trial

TOTAL = OPENING * ACCOUNTS


async def test_a_transfer_is_done_or_refused_once() -> None:
    async with MemoryCluster() as cluster, Host(BANK, (await cluster.connect()).book(BOOK)) as host:
        bank = await Bank.open(host.rsm)
        (one, two, *_), (broker, *_) = bank.accounts.values(), bank.brokers.values()
        outcomes = []
        for number, cents in enumerate((400, 400, 300, 200, 150), 1):
            question = Transfer(number, one, two, cents).to(broker)
            outcomes.append([await host.ask(question), await host.ask(question)])
        assert outcomes == [["done"] * 2, ["done"] * 2, ["too little"] * 2, ["done"] * 2, ["too little"] * 2]
        assert await host.ask(Transfer(6, bank.accounts["account-3"], two, 1).to(broker)) == "full"
        assert [*(await bank.balances()).values()] == [0, LIMIT, OPENING, OPENING, OPENING]
        assert await host.ask(Audit().to(bank.auditor)) == TOTAL


async def test_audits_find_all_money_while_hosts_come_and_go() -> None:
    stop = asyncio.Event()
    async with (
        MemoryCluster() as cluster,
        Rsm(BANK, (await cluster.connect()).book(BOOK)) as rsm,
        AsyncExitStack() as last,
    ):
        bank = await Bank.open(rsm)
        async with asyncio.TaskGroup() as group:
            group.create_task(bank.audit(stop))
            for client in bank.brokers:
                group.create_task(bank.transfer(client, random.Random(client), stop))
            for number in range(4):
                host = Host(BANK, (await cluster.connect()).book(BOOK), name=f"host-{number}")
                async with AsyncExitStack() as running:
                    await (last if number == 3 else running).enter_async_context(host)
                    wanted = len(bank.answers) + 40
                    while len(bank.answers) < wanted:
                        await let_pass(0.01)
            stop.set()
        balances = await bank.balances()
    assert check(bank.answers, bank.audits, balances) == []
    assert {answer.outcome for answer in bank.answers} == {"done", "too little", "full"} and bank.audits


ANSWERS = (
    Answer("client-1/1", "a", "b", 300, "done", "done"),
    Answer("client-2/1", "b", "a", 5_000, "too little", "too little"),
    Answer("client-1/2", "b", "a", 100, "done", "done"),
)
BALANCES = {"a": 800, "b": 1_200}


def test_a_faultless_bank_has_no_faults() -> None:
    assert check(ANSWERS, [2_000, 2_000], BALANCES) == []


@pytest.mark.parametrize(
    ("faults", "fault"),
    [
        (lambda: check(ANSWERS, [2_000, 1_700], BALANCES), "audit 2 found 1700 of 2000 cents"),
        (lambda: check(ANSWERS, [], {"a": 500, "b": 1_200}), "the accounts have 1700 of 2000 cents at the end"),
        (
            lambda: check(ANSWERS, [], {"a": 500, "b": 1_500}),
            "account a has 500 cents, by the answers of all clients it has 800",
        ),
        (
            lambda: check(ANSWERS[1:], [], BALANCES),
            "account b has 1200 cents, by the answers of all clients it has 900",
        ),
        (
            lambda: check([*ANSWERS, Answer("client-2/2", "a", "b", 1, "full", "done")], [], BALANCES),
            "the client of client-2/2 was told 'full', then 'done'",
        ),
        (
            lambda: check([*ANSWERS, Answer("client-2/2", "a", "b", 900, "done", "done")], [], {"a": -100, "b": 2_100}),
            "account a has -100 cents",
        ),
    ],
)
def test_each_fault_is_found(faults: Callable[[], list[str]], fault: str) -> None:
    assert fault in faults()


@pytest.mark.processes
@pytest.mark.waits
@pytest.mark.timeout(200)
async def test_a_short_trial_of_the_bank(tmp_path: Path) -> None:
    found = await trial(tmp_path, seconds=10, seed=2)
    assert found.faults == []
    assert found.answers and found.audits and found.struck.total() >= 1


@pytest.mark.nightly
@pytest.mark.processes
@pytest.mark.timeout(600)
async def test_a_minute_of_the_bank(tmp_path: Path) -> None:
    found = await trial(tmp_path, seconds=60, seed=7)
    assert found.faults == []
