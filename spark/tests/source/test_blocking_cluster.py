"""The blocking face of planning, of a `boki dev`."""

from __future__ import annotations

import pytest

pytest.importorskip("pyarrow", reason="the extra `spark` is not installed: make spark", exc_type=ImportError)

import boki
from boki_common.errors import ClosedError
from boki_common.ids import book_id
from boki_logbook.scan.facts import ScanRange, reached
from boki_spark.source.blocking_cluster import ClusterOptions, open_source

pytestmark = pytest.mark.processes


def test_what_was_appended_is_committed_and_planned(dev: str, client: boki.sync.Client, name: str) -> None:
    book = client.book(name)
    seqnum = book.append(b"x")
    with open_source(ClusterOptions(url=dev)) as source:
        committed = source.committed()
        while committed.end[0] < (seqnum >> 35, (seqnum & (2**35 - 1)) + 1):
            committed = source.committed()
        plan = source.plan(ScanRange({}, committed.end, book_id(name)))
        assert plan.rows == 1 and reached(committed, plan.asked.end)
        assert source.seek(0)[0][1] == 0


def test_a_closed_source_raises(dev: str) -> None:
    source = open_source(ClusterOptions(url=dev))
    source.close()
    source.close()
    with pytest.raises(ClosedError):
        source.committed()
