"""Decisions of people about faults, made by programs without the code of the machines."""

from __future__ import annotations

from boki.testing import MemoryCluster
from bokilib.append.log import Log
from bokirsm_tools.deciding import decide
from bokirsm_tools.reading import life_of, resolve
from libs.tests.rsm.operated import fill, run


async def test_a_fault_is_resumed_or_its_event_skipped(cluster: MemoryCluster) -> None:
    client = await cluster.connect()
    await fill(client)
    log = Log(client.book("shop"))
    divider = await resolve(log, "shop", "shop", "divider")
    resumed = await decide(log, divider, skip=False)
    assert resumed is not None and resumed.error == "ZeroDivisionError: division by zero"
    assert await decide(log, divider, skip=False) is None, "it has no fault until a host handles the event again"
    await run(client)
    failed = (await life_of(log, divider)).machine.fault
    assert failed is not None and failed.seqnum > resumed.seqnum, "the code was not mended"
    assert await decide(log, divider, skip=True) == failed
    skipped = (await life_of(log, divider)).machine.fault
    assert skipped is not None and skipped.skip, "until a host drops the event"
    await run(client)
    found = (await life_of(log, divider)).machine
    assert found.status == "ready" and found.state is not None
    assert (found.state.registers["done"], found.waits) == (b"\x02", ()), "the next event was handled"
