"""Who reaches a port, and who may listen where."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from boki_common.errors import SettingsError
from boki_common.exposure import check_exposed, is_loopback, needs_resolving, reached_by_others


@pytest.mark.parametrize(
    ("host", "resolved", "reached"),
    [
        ("127.0.0.1", [], False),
        ("127.0.0.2", [], False),
        ("127.255.255.254", [], False),
        ("::1", [], False),
        ("::ffff:127.0.0.1", [], False),
        ("localhost", [], False),
        ("LocalHost", [], False),
        ("0.0.0.0", [], True),
        ("::", [], True),
        ("", [], True),
        ("10.0.0.1", [], True),
        ("128.0.0.1", [], True),
        ("169.254.1.1", [], True),
        ("fe80::1%eth0", [], True),
        ("::ffff:10.0.0.1", [], True),
        ("a-name", ["127.0.0.1"], False),
        ("a-name", ["127.0.1.1", "::1"], False),
        ("a-name", ["127.0.0.1", "10.0.0.1"], True),
        ("a-name", ["10.0.0.1"], True),
        ("a-name", [], True),
        ("0", ["0.0.0.0"], True),
        ("127.1", ["127.0.0.1"], False),
        ("localhost.example", ["203.0.113.1"], True),
        ("*", [], True),
    ],
)
def test_what_is_not_surely_this_machines_alone_is_reached_by_others(
    host: str, resolved: list[str], reached: bool
) -> None:
    assert reached_by_others(host, resolved) is reached


@given(st.ip_addresses())
def test_an_address_needs_no_resolver(address: object) -> None:
    assert not needs_resolving(str(address))
    assert reached_by_others(str(address), ["127.0.0.1"]) is not is_loopback(str(address))


@pytest.mark.parametrize("insecure", [False, True])
@pytest.mark.parametrize("asks", [False, True])
def test_nothing_is_said_of_ports_that_are_this_machines_alone(asks: bool, insecure: bool) -> None:
    assert check_exposed([], asks_for_token=asks, insecure=insecure) == []


def test_with_a_token_a_port_may_listen_on_all_addresses() -> None:
    assert check_exposed(["0.0.0.0:1"], asks_for_token=True, insecure=False) == []


def test_without_a_token_it_is_refused_with_every_port_and_all_ways_out() -> None:
    with pytest.raises(SettingsError, match=r"0\.0\.0\.0:1, \[::\]:2.*--token-file.*127\.0\.0\.1.*--insecure"):
        check_exposed(["0.0.0.0:1", "[::]:2"], asks_for_token=False, insecure=False)


def test_insecure_says_so_in_one_line() -> None:
    (said,) = check_exposed(["0.0.0.0:1", "[::]:2"], asks_for_token=False, insecure=True)
    assert said.startswith("insecure: other machines reach 0.0.0.0:1, [::]:2") and "\n" not in said
