"""Who may say what: every role against everything that is more than a question."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from boki_common.cluster_token import NO_TOKEN, ClusterToken, parse
from boki_common.errors import BokiError, NotPermitted, from_wire
from boki_metalog.entries import sequencer_protocol as protocol
from boki_metalog.entries.metalog_entry import Expire, Lost, Trim
from boki_metalog.entries.permissions import (
    ADMINISTRATOR,
    CONTROLLER,
    ENGINE,
    NO_RIGHTS,
    OF_EARLIER_VERSION,
    PARTICIPANT,
    Rights,
)
from boki_metalog.entries.progress import Order
from boki_metalog.errors import ShardNotOpen

ORDERS: dict[str, Order] = {
    "TRIM": Trim(1, ((0, 5),), False),
    "EXPIRE": Expire(1, bytes(16), 3),
    "LOST": Lost(1, 0, 0, 1, b"{}"),
}
ALL = {"shards", "TRIM", "EXPIRE", "LOST", "YIELD"}


def permitted(rights: Rights) -> set[str]:
    found = set()
    for what in sorted(ALL):
        try:
            if what == "shards":
                rights.check_shards("OPEN")
            elif what == "YIELD":
                rights.check_yield()
            else:
                rights.check_order(ORDERS[what])
        except NotPermitted:
            continue
        found.add(what)
    assert rights.shards == ("shards" in found)
    return found


@pytest.mark.parametrize("token_asked", [False, True])
@pytest.mark.parametrize(
    ("role", "expected"),
    [
        (PARTICIPANT, set()),
        (ENGINE, {"shards", "TRIM", "EXPIRE"}),
        (CONTROLLER, {"YIELD"}),
        (ADMINISTRATOR, {"TRIM", "EXPIRE", "LOST", "YIELD"}),
        ("of a later version", set()),
    ],
)
def test_a_role_may_say_what_it_needs_and_no_more(role: str, expected: set[str], token_asked: bool) -> None:
    assert permitted(Rights(role, token_asked=token_asked)) == expected


def test_without_a_token_an_earlier_version_may_all_it_could_with_one_nothing() -> None:
    assert permitted(Rights(OF_EARLIER_VERSION, token_asked=False)) == ALL
    assert permitted(Rights(OF_EARLIER_VERSION, token_asked=True)) == set()


def test_before_hello_nothing_is_permitted() -> None:
    assert permitted(NO_RIGHTS) == set()


def test_the_refusal_says_who_may_and_who_asked() -> None:
    with pytest.raises(
        NotPermitted, match="expected LOST from a peer whose HELLO says administrator, found engine"
    ) as no:
        Rights(ENGINE, token_asked=True).check_order(ORDERS["LOST"])
    assert no.value.definite and not no.value.retryable


# -- over the wire: every message that there is, by every role

A = "0a" * 16
TOKEN = parse("a-token-of-the-cluster-01", "test")
QUESTIONS = {"STATUS", "BARRIER", "SUBSCRIBE"}
SHARDS = {"OPEN", "REPORT", "CARRY", "CLOSE"}
MAY = {
    PARTICIPANT: QUESTIONS,
    ENGINE: QUESTIONS | SHARDS | {"TRIM", "EXPIRE"},
    CONTROLLER: QUESTIONS | {"YIELD"},
    ADMINISTRATOR: QUESTIONS | {"TRIM", "EXPIRE", "LOST", "YIELD"},
    "of a later version": QUESTIONS,
    OF_EARLIER_VERSION: QUESTIONS,
}
"""Where a cluster token is asked for; else a peer of an earlier version may say everything."""
CALLS: dict[str, tuple[int, Callable[[int], bytes]]] = {
    "STATUS": (protocol.OP_STATUS, lambda _: b""),
    "BARRIER": (protocol.OP_BARRIER, protocol.encode_term),
    "SUBSCRIBE": (protocol.OP_SUBSCRIBE, lambda term: protocol.encode_subscribe(term, 0)),
    "OPEN": (protocol.OP_OPEN, lambda term: protocol.encode_open(term, A, 50)),
    "CLOSE": (protocol.OP_CLOSE, lambda term: protocol.encode_close(term, 0)),
    "TRIM": (protocol.OP_ORDER, lambda term: protocol.encode_order(term, ORDERS["TRIM"])),
    "EXPIRE": (protocol.OP_ORDER, lambda term: protocol.encode_order(term, ORDERS["EXPIRE"])),
    "LOST": (protocol.OP_ORDER, lambda term: protocol.encode_order(term, ORDERS["LOST"])),
    "YIELD": (protocol.OP_YIELD, protocol.encode_term),
}
PUSHES: dict[str, tuple[int, Callable[[int], bytes]]] = {
    "REPORT": (protocol.OP_REPORT, lambda term: protocol.encode_report(term, {0: (1, 1)})),
    "CARRY": (protocol.OP_CARRY, lambda term: protocol.encode_carry(term, 0, 1, 1) + b"x"),
}


def test_the_table_has_every_message_that_a_sequencer_takes() -> None:
    received = {opcode for opcode, _ in (*CALLS.values(), *PUSHES.values())}
    said = {protocol.OP_HELLO, protocol.OP_ENTRIES, protocol.OP_LAGGED, protocol.OP_TERM_OVER, protocol.OP_REFUSED}
    known = {number for name, number in vars(protocol).items() if name.startswith("OP_")}
    assert received | said == known, "a message that is new needs its row"
    assert set(MAY[ENGINE]) | set(MAY[ADMINISTRATOR]) == {*CALLS, *PUSHES}


@pytest.mark.parametrize("token", [TOKEN, NO_TOKEN], ids=["token", "none"])
@pytest.mark.parametrize("role", MAY)
async def test_a_sequencer_takes_from_each_role_what_it_may_send_and_nothing_else(
    cluster: Any, role: str, token: ClusterToken
) -> None:
    may = MAY[role] if role != OF_EARLIER_VERSION or token is TOKEN else {*CALLS, *PUSHES}
    sequencer = await cluster.serving(token=token, over_grace_s=0.0)
    for what, (opcode, body) in CALLS.items():
        peer = await cluster.participant(sequencer.address, A, token=token, role=role)
        error, entries = None, sequencer.status()["term"]["entries"]
        try:
            await peer.peer.call(opcode, body(sequencer.term or 1))
        except BokiError as fault:
            error = fault  # what was accepted may be wrong
        assert isinstance(error, NotPermitted) == (what not in may), (what, error)
        assert error is None or what in may or (error.definite and not error.retryable)
        assert what in may or sequencer.status()["term"]["entries"] == entries
        while not sequencer.term:
            await asyncio.sleep(0)  # it was asked to end its term
    for what, (opcode, body) in PUSHES.items():
        peer = await cluster.participant(sequencer.address, A, token=token, role=role)
        peer.peer.push(opcode, body(sequencer.term))
        if what in may:
            await peer.round_trip()
            assert isinstance(from_wire(await peer.pushed(protocol.OP_REFUSED)), ShardNotOpen), "accepted, and wrong"
        else:
            await peer.lost.wait()
    assert [row["records"] for row in sequencer.status()["term"]["shards"]] in ([], [0])
