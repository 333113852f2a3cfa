"""Steps are recognised by what arrives, what is written, and what the disk does."""

from __future__ import annotations

from typing import Any

from boki_common.bookkeeper import v2
from boki_common.engine import engine_protocol
from boki_common.net import messages
from boki_metalog.entries import sequencer_protocol
from boki_sim.world.steps import (
    BARRIER_ANSWERED,
    BARRIER_ASKED,
    CHANGES,
    ENTRY_CARRIED,
    HEADS_KEPT,
    IDLE,
    RECENT_S,
    STEPS,
    Met,
    Steps,
    StepsOfHeads,
    of_bookie,
    of_change,
    of_disk,
    of_engine,
    of_sequencer,
)


def v2_head(operation: int, flags: int = 0) -> bytes:
    return bytes((v2.VERSION, operation)) + flags.to_bytes(2, "big") + bytes(4)


def test_frames_of_bookies_show_whose_log_and_whether_it_is_recovered() -> None:
    add = v2_head(v2.OP_ADD)
    assert of_bookie(add, False, "engine") == "data add"
    assert of_bookie(add, True, "sequencer") == "metalog ack"
    assert of_bookie(v2_head(v2.OP_ADD, v2.FLAG_RECOVERY_ADD), False, "engine") == "recovery add"
    assert of_bookie(v2_head(v2.OP_READ, v2.FLAG_FENCE), False, "sequencer") == "fencing read"
    assert of_bookie(v2_head(v2.OP_BATCH_READ), False, "engine") == "entry read"
    assert of_bookie(bytes((0x0A, 6, 8, 3, 16, 7, 24, 1)), False, "engine") == "LAC asked"
    assert of_bookie(v2_head(v2.OP_AUTH), False, "engine") == ""


def test_frames_of_engines_and_sequencers() -> None:
    def head(operation: int) -> bytes:
        return bytes((messages.VERSION, operation, 0, 0))

    assert of_engine(head(engine_protocol.OP_APPEND), False) == "append"
    assert of_engine(head(engine_protocol.OP_HELLO), False) == ""
    assert of_sequencer(head(sequencer_protocol.OP_ENTRIES), True) == "cut pushed"
    assert of_sequencer(head(sequencer_protocol.OP_CARRY), False) == ENTRY_CARRIED
    assert of_sequencer(head(sequencer_protocol.OP_BARRIER), False) == BARRIER_ASKED
    assert of_sequencer(head(sequencer_protocol.OP_BARRIER), True) == BARRIER_ANSWERED


def test_heads_are_reported_once_and_so_many_are_remembered() -> None:
    heads: list[bytes] = []

    def tell(head: bytes) -> str:
        heads.append(head)
        return f"step {head[0]}"

    table = StepsOfHeads(tell)
    assert [table[b"a"], table[b"b"], table[b"a"]] == ["step 97", "step 98", "step 97"]
    assert heads == [b"a", b"b"]
    for number in range(3 * HEADS_KEPT):
        assert table[number.to_bytes(2, "big")] == f"step {number >> 8}"
    assert len(table) <= HEADS_KEPT


def test_changes_of_metadata() -> None:
    assert of_change("/boki/view", b"", None) == "view swap"
    assert of_change("/boki/terms/3", b"", None) == "term sealed"
    assert of_change("/ledgers/00/0000/L0001", b"x", None) == "ledger created"
    assert of_change("/ledgers/LAYOUT", b"x", None) == ""


def test_the_disk_is_recognised_by_what_it_holds() -> None:
    assert of_disk("sync", "journal/12.segment") == "journal flush"
    assert of_disk("read", "journal/12.segment") == "replay"
    assert of_disk("replace", "CHECKPOINT") == "checkpoint"
    assert of_disk("size", "entries/1.entries") == ""


def test_every_step_has_one_name() -> None:
    assert len(set(STEPS)) == len(STEPS)
    assert set(CHANGES) < set(STEPS)


def test_who_waits_is_notified_once_at_the_nth_time_from_then(simulation: Any) -> None:
    steps = Steps(simulation.loop)
    found: list[Met] = []
    bookie, engine = simulation.process("bookie-1"), simulation.process("engine-1")
    steps.met("data add", bookie, engine)
    steps.wait("data add", 2, found.append)
    for _ in range(3):
        steps.met("data add", bookie, engine)
        steps.met("append", engine)
    assert found == [Met("data add", bookie, engine)]
    steps.wait("append", 1, found.append)
    steps.forget_waiting()
    steps.met("append", engine)
    assert len(found) == 1
    assert steps.counts == {"data add": 4, "append": 4}


def test_a_process_is_in_its_last_step_for_a_moment(simulation: Any) -> None:
    steps = Steps(simulation.loop)
    bookie = simulation.process("bookie-1")
    assert steps.of(bookie) == steps.of(None) == IDLE
    steps.met("journal write", bookie)
    simulation.loop.now += RECENT_S * 0.9
    assert steps.of(bookie) == "journal write"
    simulation.loop.now += RECENT_S
    assert steps.of(bookie) == IDLE
