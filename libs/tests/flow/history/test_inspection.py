"""What the log has of workflows."""

from __future__ import annotations

import pytest

import boki
from bokiflow import Worker
from bokiflow.history import inspection
from libs.tests.flow.shop import Shop


async def test_all_of_one_workflow_is_read_from_the_log(shop: Shop, worker: Worker) -> None:
    handle = await worker.start(shop.parent.call(1), id="x", attributes={"a": "b"})
    await handle.result()
    known = await inspection.known(worker.log, "x")
    assert known is not None
    assert (known.name, known.status, known.attributes, known.parent) == ("parent", "completed", {"a": "b"}, "")
    child = await inspection.known(worker.log, "x/0/1:1")
    assert child is not None and child.parent == "x" and child.outcome is not None and child.outcome.value == 0
    assert [one.kind for one in await inspection.done(worker.log, "x")] == [
        "invoke",
        "child",
        "invoke",
        "child",
        "end",
    ]
    assert await inspection.ids(worker.log, "shop") == ["x", "x/0/1:1", "x/0:1"]
    assert await inspection.known(worker.log, "y") is None
    assert await inspection.newest_of(worker.log, ["y", "x/0:1"]) != [None, None]


async def test_the_error_of_a_known_workflow_has_the_frames_of_its_own_code(shop: Shop, worker: Worker) -> None:
    handle = await worker.start(shop.fail.call("no"), id="x")
    with pytest.raises(ValueError, match="no"):
        await handle.result()
    known = await inspection.known(worker.log, "x")
    assert known is not None and known.outcome is not None and known.outcome.error is not None
    assert "shop.py" in known.outcome.error.stack and "/bokiflow/" not in known.outcome.error.stack


async def test_a_history_that_was_trimmed_is_not_half_a_history(shop: Shop, worker: Worker, book: boki.Book) -> None:
    await (await worker.start(shop.steps.call(2), id="x")).result()
    position = await book.now(consistency="linearizable")
    await book.trim(before=position, tag="flow/wf/x")
    last = await worker.log.book.now(consistency="linearizable")
    with pytest.raises(boki.Trimmed):
        await inspection.history(worker.log, "x", last)
