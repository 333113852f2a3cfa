"""First validation: what the metadata must say before a bookie believes a writer it never met."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.turns import turns

from boki_bookie.entries.validation import LedgerValidation, judge
from boki_common.bookkeeper.layout import LEDGER_ID_MAX, create_ledger, ledger_path
from boki_common.bookkeeper.ledger_metadata import LedgerState
from boki_common.bookkeeper.status import V2Status


@pytest.fixture
def validate(world: Any) -> LedgerValidation:
    return LedgerValidation(world.store, "me", world.tiny(validation_timeout_s=5.0, validation_retry_for_s=0.0))


async def test_an_open_ledger_that_names_us_is_ok(world: Any, validate: LedgerValidation) -> None:
    await world.ledger(7, "me", others=["you"])
    assert await validate(7) is V2Status.OK


@pytest.mark.parametrize("state", [LedgerState.IN_RECOVERY, LedgerState.CLOSED])
async def test_a_ledger_that_is_no_longer_open_is_fenced(
    world: Any, validate: LedgerValidation, state: LedgerState
) -> None:
    await world.ledger(7, "me", state)
    assert await validate(7) is V2Status.FENCED


async def test_a_ledger_of_others_and_an_unknown_one_are_fenced(world: Any, validate: LedgerValidation) -> None:
    await world.ledger(7, "you")
    assert await validate(7) is V2Status.FENCED
    assert await validate(8) is V2Status.FENCED
    assert await validate(LEDGER_ID_MAX + 1) is V2Status.BAD_REQUEST


async def test_metadata_that_comes_late_is_waited_for(world: Any) -> None:
    validate = LedgerValidation(world.store, "me", world.tiny(validation_timeout_s=20.0, validation_retry_for_s=20.0))
    looking = asyncio.ensure_future(validate(7))
    await turns(10)
    assert not looking.done()
    await world.ledger(7, "me")
    assert await looking is V2Status.OK


async def test_a_store_that_is_away_is_waited_for_and_never_guessed_at(world: Any, validate: LedgerValidation) -> None:
    await world.ledger(7, "me")
    world.store.disconnect()
    looking = asyncio.ensure_future(validate(7))
    await turns(10)
    assert not looking.done()
    world.store.reconnect()
    assert await looking is V2Status.OK


async def test_the_wait_is_bounded(world: Any) -> None:
    world.store.disconnect()
    validate = LedgerValidation(world.store, "me", world.tiny(validation_timeout_s=0.03))
    assert await validate(7) is V2Status.TOO_MANY_REQUESTS


async def test_metadata_that_cannot_be_read_is_unknown(world: Any, validate: LedgerValidation) -> None:
    await create_ledger(world.store, 7, b"garbage")
    assert (await world.store.get(ledger_path(7))).value == b"garbage"
    assert await validate(7) is V2Status.IO_ERROR


def test_an_absent_ledger_may_only_be_late() -> None:
    assert judge(None, "me") is None
