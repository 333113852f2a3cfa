"""What checkers report: the kind of anomaly, a sentence, and the calls that show it."""

from __future__ import annotations

from typing import Literal, NamedTuple

from boki_sim.checkers.history import Operation

Anomaly = Literal[
    "lost",
    "duplicated",
    "reordered",
    "phantom",
    "stale",
    "non-monotonic",
    "wrong verdict",
    "wrong trim",
    "impossible order",
]
"""
lost             acknowledged, and later nobody finds it
duplicated       one append is in the log twice
reordered        the log contradicts real time, or two readers disagree on what lies at a place
phantom          a record that nobody appended, or that was refused, or that was read before it was appended
stale            a read that missed what was acknowledged before it began
non-monotonic    a session saw less than it had seen
wrong verdict    a condition that held was refused, or one that failed was let through
wrong trim       a read reports a trim that nobody made, or shows records after their trim
impossible order each call is possible by itself, all together are not
"""


class Finding(NamedTuple):
    """One violation in one book."""

    anomaly: Anomaly
    book: str
    text: str
    calls: tuple[Operation, ...]
    """In the order in which the text speaks of them."""


def name_of(operation: Operation) -> str:
    """A call as a person would say it."""
    end = "never returned" if operation.end is None else f"{operation.end:.6g}"
    when = f"{operation.client}, {operation.start:.6g} … {end} s"
    if operation.kind == "append":
        what = f"append {operation.data!r}"
        if operation.expect:
            what += f" if {operation.expect}"
        result = f"at {operation.seqnum}" if operation.seqnum is not None else operation.outcome
        return f"{what} → {result} ({when})"
    if operation.kind == "token":
        return f"takes over what {operation.of} has seen ({when})"
    stream = f"tag {operation.tag!r}" if operation.tag else "all"
    if operation.kind == "trim":
        forget = " and forget" if operation.forget else ""
        return f"trim {stream} before {operation.before}{forget} → {operation.outcome} ({when})"
    end_of_range = "end" if operation.high is None else str(operation.high)
    seen = ", ".join(f"{seqnum} {data!r}" for seqnum, data in operation.rows[-3:]) or "nothing"
    if len(operation.rows) > 3:
        seen = f"{len(operation.rows)} records, the last {seen}"
    return f"read {stream} in [{operation.low}, {end_of_range}) → {seen} ({when})"
