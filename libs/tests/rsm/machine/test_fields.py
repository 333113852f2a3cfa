"""Fields: tables as mappings, and what may not be done with fields."""

from __future__ import annotations

import pytest

from bokilib.errors import NotEncodable
from bokirsm import Event, Machine, Register, State, Table, UndeclaredField, WrongCall
from bokirsm.machine.fields import TableView
from bokirsm.machine.handling import HandlerFailed
from bokirsm.machine.values import Codec, encode
from libs.tests.rsm.one_machine import OneMachine


def view(**stored: list[int]) -> TableView[str, list[int]]:
    field: Table[str, list[int]] = Table()
    field.keys, field.values = Codec(str), Codec(list[int])
    return TableView(field, {encode(key): encode(value) for key, value in stored.items()})


def test_a_table_is_a_mapping() -> None:
    table = view(a=[1], b=[2])
    table["c"] = [3]
    del table["a"]
    assert list(table) == ["b", "c"] and len(table) == 2 and dict(table) == {"b": [2], "c": [3]}
    assert "a" not in table and "c" in table and table.get("a") is None and table.pop("b") == [2]
    assert list(table) == ["c"] and len(table) == 1
    table["a"] = [9]
    assert list(table) == ["a", "c"]
    for missing in ("x", "b"):
        with pytest.raises(KeyError):
            table[missing]
        with pytest.raises(KeyError):
            del table[missing]
    assert table.changes() == {encode("c"): encode([3]), encode("a"): encode([9]), encode("b"): None}


def test_a_value_that_was_changed_in_place_is_a_change() -> None:
    table = view(a=[1], b=[2])
    table["a"].append(5)
    assert table["b"] == [2] and table.changes() == {encode("a"): encode([1, 5])}
    table["a"].pop()
    assert table.changes() == {}


def test_keys_are_values_of_their_type() -> None:
    field: Table[float, str] = Table()
    field.keys, field.values = Codec(float, "keys of Shelf.prices"), Codec(str)
    table = TableView(field, {})
    table[1] = "one"
    assert list(table) == [1.0] and 1.0 in table and dict(table) == {1.0: "one"}
    with pytest.raises(NotEncodable, match=r"expected keys of Shelf\.prices to be of type float, found 'a'"):
        table["a"] = "x"  # type: ignore[index]


def test_equal_sets_and_structs_are_one_key() -> None:
    field: Table[tuple[frozenset[str], ...], int] = Table()
    field.keys, field.values = Codec(tuple[frozenset[str], ...]), Codec(int)
    table = TableView(field, {})
    names = [f"name-{number}" for number in range(20)]
    table[frozenset(names),] = 1
    table[frozenset(reversed(names)),] = 2
    assert dict(table) == {(frozenset(names),): 2} and len(table.changes()) == 1


class Go(Event):
    pass


class Empty(Machine[Go]):
    text: Register[str] = Register()
    names: Table[str, int] = Table()
    run = State(start=True)

    @run.on(Go)
    def go(self, e: Go) -> None:
        raise AssertionError(self.text)

    @run.entry
    def enter(self) -> None:
        with pytest.raises(UndeclaredField, match="keys of the table 'names'"):
            self.names = {}


def test_a_register_without_a_value_is_not_read() -> None:
    one = OneMachine(Empty)
    with pytest.raises(HandlerFailed, match="to be assigned before it is read"):
        one.give(Go())


def test_fields_exist_in_handlers_only() -> None:
    kept: list[Empty] = []

    class Kept(Empty):
        def enter(self) -> None:
            kept.append(self)

    OneMachine(Kept)
    for read in (lambda: kept[0].text, lambda: kept[0].me, lambda: kept[0].halt()):
        with pytest.raises(WrongCall, match="expected a handler of this machine to run"):
            read()
    with pytest.raises(WrongCall, match="to be created by a host"):
        Empty()
