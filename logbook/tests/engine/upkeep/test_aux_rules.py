"""Chunks of aux data, and which ledgers are whose."""

from __future__ import annotations

from itertools import chain

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from boki_common import limits
from boki_common.errors import CorruptData, VersionMismatch
from boki_logbook.upkeep import aux_rules
from boki_logbook.upkeep.aux_rules import AuxNode, BackupRow, begun, finished, tidied, without

WRITTEN = AuxNode(1, (BackupRow("a", 5, "written"), BackupRow("b", 6, "written")))


@given(st.lists(st.tuples(st.integers(0, 2**64 - 1), st.binary(max_size=100)), max_size=50))
def test_items_come_back_in_order(items: list[tuple[int, bytes]]) -> None:
    chunks = list(aux_rules.encode_chunks(items))
    assert list(chain.from_iterable(aux_rules.decode_chunk(memoryview(chunk)) for chunk in chunks)) == items


def test_a_chunk_is_closed_at_its_size_and_fits_into_an_entry() -> None:
    largest = [(number, bytes(limits.AUX_BYTES)) for number in range(2)]
    small = [(number, bytes(1_000)) for number in range(300)]
    chunks = list(aux_rules.encode_chunks([*small[:250], *largest, *small[250:]]))
    assert [len(aux_rules.decode_chunk(memoryview(chunk))) for chunk in chunks] == [251, 1, 50]
    assert max(map(len, chunks)) < limits.ENTRY_BYTES


def test_version_1_of_a_chunk_is_read_and_written_as_it_is() -> None:
    recorded = bytes.fromhex("010000000200000005000000000000000300000000000000ffffffffffffff7f0000000000000000616263")
    assert list(aux_rules.encode_chunks([(5, b"abc"), (2**63 - 1, b"")])) == [recorded]
    assert aux_rules.decode_chunk(memoryview(recorded)) == [(5, b"abc"), (2**63 - 1, b"")]


@pytest.mark.parametrize("cut", [3, 20, -1])
def test_what_is_not_whole_is_refused(cut: int) -> None:
    (chunk,) = aux_rules.encode_chunks([(1, b"x"), (2, b"yz")])
    with pytest.raises(CorruptData):
        aux_rules.decode_chunk(memoryview(chunk[:cut]))
    with pytest.raises(VersionMismatch):
        aux_rules.decode_chunk(memoryview(b"\2" + chunk[1:]))


def test_the_node_is_json_with_a_version() -> None:
    assert aux_rules.decode_node(aux_rules.encode_node(WRITTEN)) == WRITTEN
    with pytest.raises(VersionMismatch, match="expected version 1 in /boki/aux, found 2: upgrade"):
        aux_rules.decode_node(b'{"version": 2, "ledgers": []}')
    with pytest.raises(CorruptData, match="/boki/aux"):
        aux_rules.decode_node(b'{"ledgers": [["a", "b", "c"]]}')


def test_a_backup_takes_the_place_of_the_one_before() -> None:
    node = finished(begun(WRITTEN, "a", 9), "a", 9)
    assert node is not None
    assert node.ledgers == (BackupRow("a", 5, "retired"), BackupRow("b", 6, "written"), BackupRow("a", 9, "written"))
    assert without(node, {5}).ledgers == node.ledgers[1:]


def test_an_engine_that_was_taken_for_gone_has_no_backup() -> None:
    node = tidied(begun(WRITTEN, "a", 9), alive={"b"}, read=())
    assert finished(node, "a", 9) is None


def test_what_an_engine_left_is_kept_until_it_is_read() -> None:
    node = begun(WRITTEN, "a", 9)
    assert tidied(node, alive={"a", "b"}, read={5, 6}) == node
    gone = tidied(node, alive={"b"}, read=())
    assert [row.state for row in gone.ledgers] == ["written", "written", "retired"]
    assert [row.state for row in tidied(gone, alive={"b"}, read={5, 6}).ledgers] == ["retired", "written", "retired"]


class Engines(RuleBasedStateMachine):
    """No ledger is without a row, and none that is retired was the only backup of somebody alive."""

    def __init__(self) -> None:
        super().__init__()
        self.node = AuxNode()
        self.made = 0
        self.alive = {"a", "b"}
        self.there: set[int] = set()
        self.backup: dict[str, int] = {}

    @rule(who=st.sampled_from("abc"), ends=st.booleans())
    def save(self, who: str, ends: bool) -> None:
        if who not in self.alive:
            return
        self.made += 1
        self.there.add(self.made)
        self.node = begun(self.node, who, self.made)
        after = finished(self.node, who, self.made) if ends else None
        if after is not None:
            self.node = after
            self.backup[who] = self.made

    @rule(who=st.sampled_from("abc"))
    def comes_or_goes(self, who: str) -> None:
        self.alive ^= {who}
        self.backup.pop(who, None)

    @rule(read=st.sets(st.integers(1, 20)))
    def tidy(self, read: set[int]) -> None:
        self.node = tidied(self.node, self.alive, read)

    @rule()
    def delete(self) -> None:
        retired = {row.ledger_id for row in self.node.of_state("retired")}
        self.there -= retired
        self.node = without(self.node, retired)

    @invariant()
    def all_are_named(self) -> None:
        assert self.there == {row.ledger_id for row in self.node.ledgers}
        written = {row.incarnation: row.ledger_id for row in self.node.of_state("written")}
        assert {who: written.get(who) for who in self.backup} == self.backup


TestEngines = Engines.TestCase
TestEngines.settings = settings(max_examples=50, deadline=None)
