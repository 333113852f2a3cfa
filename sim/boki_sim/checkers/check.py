"""Checks a whole history, book by book (a book is linearizable by itself, so all of them are). Tokens are of every book."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from boki_sim.checkers.findings import Finding
from boki_sim.checkers.history import ORDERED, Operation
from boki_sim.checkers.order import BookOrder
from boki_sim.checkers.records import BookLog


def check(operations: Iterable[Operation], *, forget_after_s: float = 0.0) -> list[Finding]:
    """What is wrong with a history; empty if nothing is. `forget_after_s`: a stream whose newest record is younger is not
    forgotten; 0: nobody knows, so it may be. Raises ValueError: two appends name the same record: `data` must be unique."""
    books: dict[str, list[Operation]] = defaultdict(list)
    tokens: list[Operation] = []
    for operation in operations:
        if operation.kind == "token":
            tokens.append(operation)
        elif operation.kind in ORDERED:
            books[operation.book].append(operation)
    findings: list[Finding] = []
    for book in sorted(books):
        log = BookLog(book, books[book], forget_after_s=forget_after_s)
        findings.extend(log.findings)
        findings.extend(BookOrder(log, [*books[book], *tokens]).check())
    return findings
