"""The test kit: correct workflows pass, and planted defects are found."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import boki
import bokiflow
from bokiflow import App, Call
from bokiflow.model import records
from bokiflow.testing import in_virtual_time, survives
from bokilib.append.log import Log
from bokilib.records.contribution import Contribution
from bokiqueue import Queue
from bokistore import BokiStore, Transaction
from libs.tests.flow.shop import Shop


@in_virtual_time
async def test_each_feature_survives() -> None:
    shop = Shop()
    features: list[tuple[Call[Any], dict[str, Any]]] = [
        (shop.steps.call(2), {"expected": 1}),
        (shop.compensate.call("no"), {"expected": "no: 2"}),
        (shop.fail.call("no"), {"raises": ValueError}),
        (shop.wait.call(2), {"expected": [1, 1], "signals": [("go", 1), ("go", 1)]}),
        (shop.parent.call(1), {"expected": 0}),
    ]
    for call, expected in features:
        survived = await survives(shop.app, call, **expected)
        assert survived.operations > 5 and survived.runs > 20 and survived.replays > 5, call
        assert "tested" in survived.histories


@in_virtual_time
async def test_a_sleep_of_ten_minutes_takes_no_time() -> None:
    shop = Shop()
    survived = await survives(shop.app, shop.patient.call(600), expected="late 2")
    assert survived.runs > 20


async def test_it_runs_in_real_time_too() -> None:
    shop = Shop()
    assert (await survives(shop.app, shop.steps.call(1), expected=0, second_worker=False)).runs > 10


def moving(*, atomic: bool) -> Any:
    """Move ten cents from ann to bob, in one transaction or (planted) in two records of one step."""

    def make(log: Log) -> tuple[App, Call[Any]]:
        app, store = App("bank"), BokiStore(log)

        async def both(tx: Transaction) -> None:
            tx["ann"].inc("cents", -10)
            tx["bob"].inc("cents", 10)

        @app.step
        async def one_by_one() -> None:
            await store.object("ann").inc("cents", -10)
            await store.object("bob").inc("cents", 10)

        @app.workflow
        async def move() -> None:
            await (bokiflow.transact(store, both) if atomic else one_by_one())

        return app, move.call()

    return make


async def nothing_is_lost(book: boki.Book) -> None:
    store = BokiStore(Log(book))
    values = [await store.object(name).get("cents") for name in ("ann", "bob")]
    assert values == [-10, 10]


@in_virtual_time
async def test_a_step_that_is_not_atomic_is_found() -> None:
    await survives(moving(atomic=True), check=nothing_is_lost)
    with pytest.raises(AssertionError) as found:
        await survives(moving(atomic=False), check=nothing_is_lost)
    assert any("met" in note for note in found.value.__notes__), "and which fault led to it"


async def test_a_missing_fence_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = records.worker_event

    def unfenced(place: Any, event: Any, held: Any) -> Contribution:
        one = plain(place, event, held)
        return Contribution(one.tags, {}, one.events)

    monkeypatch.setattr(records, "worker_event", unfenced)
    shop = Shop()
    with pytest.raises((AssertionError, boki.BokiError, TimeoutError)):
        await asyncio.wait_for(survives(shop.app, shop.steps.call(2), expected=1, faults=()), 20)


@in_virtual_time
async def test_a_wrong_result_or_end_is_reported_with_what_was_expected() -> None:
    shop = Shop()
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"expected": 7}, "expected the result 7, found 1"),
        ({"raises": ValueError}, "expected it to raise builtins:ValueError, found the result 1"),
    ]
    for expected, message in wrong:
        with pytest.raises(AssertionError, match=message):
            await survives(shop.app, shop.steps.call(2), **expected)
    with pytest.raises(AssertionError, match="expected the result 7, found Failure"):
        await survives(shop.app, shop.fail.call("no"), expected=7)


async def test_a_program_that_opens_a_queue_is_async() -> None:
    async def program(log: Log) -> tuple[App, Call[Any]]:
        app, store, mails = App("shop"), BokiStore(log), await Queue.open(log, "mails", str)

        async def paid(tx: Transaction) -> None:
            tx["orders"].inc("paid", 1)
            tx.add(mails.pushed("paid"))

        @app.workflow
        async def order() -> str:
            await bokiflow.transact(store, paid)
            return "done"

        return app, order.call()

    async def one_mail(book: boki.Book) -> None:
        assert (await (await Queue.open(Log(book), "mails", str)).stats()).depth == 1

    assert (await survives(program, expected="done", check=one_mail)).runs > 10


@in_virtual_time
async def test_deaths_of_processes_are_no_lines_of_the_log(capsys: pytest.CaptureFixture[str]) -> None:
    async def program(log: Log) -> tuple[App, Call[Any]]:
        app, store = App("shop"), BokiStore(log)

        @app.workflow
        async def order() -> None:
            async def paid(tx: Transaction) -> None:
                mails = await Queue.open(log, "mails", str)
                tx["orders"].inc("paid", 1)
                tx.add(mails.pushed("paid"))

            await bokiflow.transact(store, paid)

        return app, order.call()

    await survives(program, expected=None, second_worker=False)
    assert not [line for line in capsys.readouterr().err.splitlines() if "Died" in line or "is blocked" in line]
