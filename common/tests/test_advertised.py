"""What a role tells others of where it is, and that it never is every address."""

from __future__ import annotations

import pytest

from boki_common.advertised import advertised, all_advertised, is_every_address
from boki_common.errors import SettingsError
from boki_common.net.connection import Address

BOUND = Address("0.0.0.0", 7041)
KEY = "sequencer.advertise"


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ("sequencer-1", "sequencer-1:7041"),
        ("10.0.0.5:9000", "10.0.0.5:9000"),
        ("[fd00::5]", "[fd00::5]:7041"),
        ("[fd00::5]:9000", "[fd00::5]:9000"),
        ("unix:///run/boki/engine.sock", "unix:///run/boki/engine.sock"),
    ],
)
def test_a_host_takes_the_port_that_is_listened_on(said: str, expected: str) -> None:
    assert str(advertised(BOUND, said, key=KEY)) == expected


def test_without_a_word_it_is_where_it_listens() -> None:
    at = Address("10.0.0.5", 7041)
    assert advertised(at, "", key=KEY) == at
    assert advertised(Address("", 0, "/run/x"), "", key=KEY).path == "/run/x"


@pytest.mark.parametrize("said", ["", "0.0.0.0", "[::]:7041"])
def test_every_address_is_refused_and_the_message_says_what_to_set(said: str) -> None:
    with pytest.raises(SettingsError, match=r"set sequencer\.advertise \(BOKI_SEQUENCER_ADVERTISE\)"):
        advertised(BOUND, said, key=KEY)


def test_what_is_no_address_is_named() -> None:
    with pytest.raises(SettingsError, match="expected a host or host:port, found 'a:b'"):
        advertised(BOUND, "a:b", key=KEY)


def test_what_is_said_replaces_all_addresses_and_a_host_has_the_first_port() -> None:
    bound = [Address("", 0, "/run/x"), BOUND, Address("0.0.0.0", 7050)]
    assert list(map(str, all_advertised(bound, ["a", "b:1"], key=KEY))) == ["a:7041", "b:1"]
    assert all_advertised(bound[:1], [], key=KEY) == bound[:1]
    assert all_advertised([], [], key=KEY) == []


def test_names_are_not_every_address() -> None:
    assert [
        host for host in ("", "0.0.0.0", "::", "127.0.0.1", "engine-1", "fe80::1%eth0") if is_every_address(host)
    ] == [*("", "0.0.0.0", "::")]
