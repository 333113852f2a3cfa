"""The outputs of a partition: what waits, what fails, and what a checkpoint carries."""

from __future__ import annotations

import pytest

from bokilib.errors import UnknownEvent
from bokirsm.model.events import AnyEvent, Commit, Done, Emitted, MessageId, Output, Undelivered
from bokirsm.model.outputs import Failure, PartitionOutputs, WaitingOutput
from bokirsm.model.partition_state import PartitionState
from bokirsm.model.parts import KeptParts, Row, compose, whole

MAIL, SMS = Output("mails", "Mail", b"m" * 100), Output("sms", "Sms", b"s")
FIRST, SECOND = MessageId(10, 0), MessageId(10, 1)


def emitted(machine: str, *outputs: Output) -> list[AnyEvent]:
    return [Commit(machine, 1), Emitted(machine, 1, outputs)]


def state() -> PartitionState:
    found = PartitionState("g", 3)
    found.apply(10, 1_000, 500, [*emitted("g/3/m", MAIL, SMS), *emitted("g/4/n", MAIL)])
    return found


def test_outputs_wait_until_their_record_says_that_they_are_delivered() -> None:
    found = state()
    outputs = found.outputs
    assert outputs.all == [(FIRST, WaitingOutput("g/3/m", MAIL, 1_000)), (SECOND, WaitingOutput("g/3/m", SMS, 1_000))]
    assert outputs.size == outputs.size_of["g/3/m"] > 100 and outputs.of("g/4/n") == []
    found.apply(11, 2_000, 10, [Done("g/4", "mails", (FIRST,))])
    assert len(outputs.all) == 2, "it is of another partition"
    found.apply(12, 2_000, 10, [Done("g/3", "mails", (FIRST,))])
    assert [id for id, _ in outputs.all] == [SECOND] and list(outputs.waiting) == ["sms"]
    found.apply(13, 2_000, 10, [Done("g/3", "sms", (FIRST, SECOND))])
    assert (outputs.all, outputs.size, outputs.size_of, outputs.waiting) == ([], 0, {}, {})


def test_a_failure_is_that_of_a_machine_until_an_output_of_it_is_delivered() -> None:
    found = state()
    failed = Undelivered("g/3", "mails", FIRST, 3, 5_000, "OSError: no")
    others = Undelivered("g/3", "mails", MessageId(9, 9), 3, 1, "x"), Undelivered("g/4", "sms", SECOND, 3, 1, "x")
    found.apply(11, 0, 10, [failed, *others])
    assert found.outputs.failures_of("g/3/m") == {"mails": Failure(FIRST, 3, 5_000, "OSError: no")}
    found.apply(12, 0, 10, [Done("g/3", "sms", (SECOND,))])
    assert found.outputs.failures
    found.apply(13, 0, 10, [Done("g/3", "mails", (FIRST,))])
    assert not found.outputs.failures


@pytest.mark.parametrize("covers", [9, 10, 11])
def test_a_checkpoint_and_the_records_above_it_are_what_all_records_are(covers: int) -> None:
    found = state()
    later: list[tuple[int, list[AnyEvent]]] = [
        (11, [Undelivered("g/3", "mails", FIRST, 3, 5_000, "OSError: no")]),
        (12, [Done("g/3", "sms", (SECOND,)), *emitted("g/3/k", SMS)]),
    ]
    for seqnum, events in later:
        found.apply(seqnum, 1_500, 10, events)
    restored = PartitionState.restored("g", 3, covers, found.checkpoint(covers))
    records: list[tuple[int, list[AnyEvent]]] = [(10, [*emitted("g/3/m", MAIL, SMS), *emitted("g/4/n", MAIL)]), *later]
    for seqnum, events in records:
        if seqnum > covers:
            restored.apply(seqnum, 1_000 if seqnum == 10 else 1_500, 10, events)
    assert sorted(restored.outputs.all) == sorted(found.outputs.all)
    assert restored.outputs.failures == found.outputs.failures
    assert (restored.outputs.size, restored.outputs.size_of) == (found.outputs.size, found.outputs.size_of)


def test_a_checkpoint_stays_below_outputs_unless_they_are_old_or_small() -> None:
    found = PartitionState("g", 3)
    found.apply(9, 1_000, 100, [Commit("g/3/k", 1)])
    found.apply(10, 1_000, 100, emitted("g/3/m", MAIL))
    assert found.next_covers(10, 0) == 9
    assert found.next_covers(10, 1_000) == 10, "it is old"
    found.apply(11, 2_000, 10_000, [Commit("g/3/k", 2)])
    assert found.next_covers(11, 0) == 11, "it is small beside what is freed"


def test_rows_of_a_newer_program_are_no_state_of_this_one() -> None:
    data = whole(compose(Row("h"), [Row("?")], KeptParts(), 0, 1))
    with pytest.raises(UnknownEvent, match="rows of kind '\\?'"):
        PartitionState.restored("g", 3, 9, data)
    assert not PartitionOutputs().restore(Row("p"))
