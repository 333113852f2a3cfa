"""What connections ask for goes through the files of the engine one way: each is entered once, and none goes everywhere."""

from __future__ import annotations

import pytest
from tests.engine.test_server import Served, query, run, served
from tests.files_entered import FilesEntered

import boki_logbook
from boki_common.engine import engine_protocol as wire
from boki_common.engine.engine_protocol import Verdict
from boki_common.engine.read_reply import decode_read_reply

__all__ = ["served"]

pytestmark = pytest.mark.own_interpreter


async def test_a_cached_record_is_read_through_files_entered_once_each(served: Served) -> None:
    sdk = await served.sdk()
    sdk.append(run(1, b"x", tags=(5,)))
    await sdk.answers(1)
    entered = FilesEntered(boki_logbook, "testing/")
    with entered.following():
        body = await sdk.peer.call(wire.OP_READ, *wire.encode_read({}, query(5, max_records=1)))
    assert len(decode_read_reply(body).records.seqnums) == 1
    files = entered.since("server.py")
    assert len(files) == len(set(files)) > 8, files
    assert entered.most_doors <= 4


async def test_no_function_that_an_append_goes_through_has_more_than_four_doors(served: Served) -> None:
    sdk = await served.sdk()
    entered = FilesEntered(boki_logbook, "testing/")
    with entered.following():
        sdk.append(run(1, b"x", tags=(5,)))
        (row,) = await sdk.answers(1)
    assert row.verdict == Verdict.COMMITTED
    assert entered.since("server.py")[:3] == ["server.py", "append/router.py", "append/appender.py"]
    assert entered.since("server.py").count("append/router.py") == 1
    assert "apply/cut_applier.py" in entered.since("apply/engine_log.py")
    assert entered.most_doors <= 4
