"""Parts of a transaction: what each begins with, and what its caller gets."""

from __future__ import annotations

import pytest

import boki
from bokiflow.model.flow_events import EnclosingTransaction, TransactionPart
from bokiflow.runtime.transactional import TransactionParts

FIRST, SECOND = TransactionPart(b"r1", b"w1"), TransactionPart(b"r2", b"w2")


def test_a_part_begins_with_what_those_before_it_wrote_and_by_itself() -> None:
    assert TransactionParts(None).next() is None
    parts = TransactionParts(EnclosingTransaction(b"context", (FIRST,)))
    parts.add([SECOND])
    assert parts.next() == EnclosingTransaction(b"context", (FIRST, SECOND))
    parts.under_way = True
    with pytest.raises(boki.InvalidArgument, match="one part"):
        parts.next()


def test_what_goes_back_is_what_was_done_here_and_of_a_failure_only_what_was_read() -> None:
    parts = TransactionParts(EnclosingTransaction(b"context", (FIRST,)))
    parts.add([SECOND])
    assert parts.for_caller(failed=False) == (SECOND,)
    assert parts.for_caller(failed=True) == (TransactionPart(b"r2"),)
