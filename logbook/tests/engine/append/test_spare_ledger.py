"""The data ledger that an engine has ready for its next shard."""

from __future__ import annotations

import pytest
from tests.engine.scripted import until

from boki_common.errors import CallTimeout, NotEnoughBookies
from boki_ledger.testing.model_ledgers import ModelLedgers
from boki_logbook.append.spare_ledger import SpareLedger
from boki_logbook.settings import EngineSettings
from boki_logbook.testing.cluster import ScriptedLog, model_ledgers
from boki_logbook.testing.logs import ScriptedLink
from boki_metalog.errors import ShardNotOpen


async def made() -> tuple[ModelLedgers, SpareLedger, ScriptedLink]:
    ledgers, log = model_ledgers(), ScriptedLog()
    await log.begin_term()
    spare = SpareLedger(ledgers, incarnation="1" * 32, settings=EngineSettings(replicas=1, acks=1))
    return ledgers, spare, ScriptedLink(log, log.term)


async def test_what_was_made_ahead_becomes_the_shard() -> None:
    ledgers, spare, link = await made()
    spare.make()
    await until(lambda: spare.spare is not None)
    number, writer = await spare.open_shard(link)
    assert (number, writer.ledger_id) == (0, 0)
    assert spare.spare is None
    assert len(ledgers.ledgers) == 1


async def test_one_that_was_offered_and_not_answered_is_offered_again_in_its_term_only() -> None:
    ledgers, spare, link = await made()
    link.open_faults = [CallTimeout("no answer")]
    with pytest.raises(CallTimeout):
        await spare.open_shard(link)
    assert (await spare.open_shard(link))[1].ledger_id == 0
    link.open_faults = [CallTimeout("no answer")]
    with pytest.raises(CallTimeout):
        await spare.open_shard(link)
    assert spare.spare is not None and spare.spare.ledger_id == 1
    await link._log.next_term()
    assert (await spare.open_shard(ScriptedLink(link._log, link._log.term)))[1].ledger_id == 2
    await until(lambda: ledgers[1].closed_at == 0)
    await spare.close()


async def test_one_that_is_refused_is_closed() -> None:
    ledgers, spare, link = await made()
    link.open_faults = [ShardNotOpen("closed")]
    with pytest.raises(ShardNotOpen):
        await spare.open_shard(link)
    assert spare.spare is None
    await until(lambda: ledgers[0].closed_at == 0)


async def test_without_bookies_there_is_none_and_it_is_made_when_it_is_needed() -> None:
    ledgers, spare, link = await made()
    ledgers.up = False
    spare.make()
    await until(lambda: ledgers.refusals)
    with pytest.raises(NotEnoughBookies):
        await spare.open_shard(link)
    ledgers.up = True
    assert (await spare.open_shard(link))[1].ledger_id == 0


async def test_two_that_are_made_at_once_are_one_too_many_and_the_last_is_deleted() -> None:
    ledgers, spare, _ = await made()
    spare.make()
    spare.make()
    await until(lambda: len(ledgers.ledgers) == 2 and any(one.closed_at == 0 for one in ledgers.ledgers.values()))
    assert spare.spare is not None
    kept = spare.spare.ledger_id
    await spare.delete()
    assert kept not in ledgers.ledgers
    await spare.delete()
    await spare.close()
