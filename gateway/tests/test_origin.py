"""Pages in somebody's browser do not reach a gateway of this machine."""

from __future__ import annotations

import pytest

from boki_gateway.errors import HostRefused, OriginRefused
from boki_gateway.origin import HostRules

LOCAL = HostRules("127.0.0.1", ())


@pytest.mark.parametrize("host", ["127.0.0.1:7080", "localhost", "LOCALHOST:1", "[::1]:7080"])
def test_names_of_this_machine_are_answered(host: str) -> None:
    LOCAL.check("POST", host, None)


@pytest.mark.parametrize("host", [None, "", "evil.example:7080", "127.0.0.1.evil.example", "[::1", "localhost:x@evil"])
def test_other_names_are_refused(host: str | None) -> None:
    with pytest.raises(HostRefused, match=r"expected Host to be .*localhost.*gateway\.allowed_hosts"):
        LOCAL.check("GET", host, None)


def test_the_settings_add_names() -> None:
    rules = HostRules("0.0.0.0", ("Log.example", "[fd00::1]"))
    for host in ("log.example:80", "[fd00::1]:7080", "127.0.0.1", "0.0.0.0:7080"):
        rules.check("GET", host, None)
    with pytest.raises(HostRefused):
        rules.check("GET", "other.example", None)


def test_beyond_this_machine_any_name_is_answered_unless_some_are_named() -> None:
    HostRules("0.0.0.0", ()).check("GET", "whatever.example", None)
    HostRules("127.0.0.1", ("*",)).check("GET", "whatever.example", None)


def test_changes_come_from_programs_and_own_pages() -> None:
    LOCAL.check("POST", "localhost:7080", "http://localhost:7080")
    LOCAL.check("GET", "localhost:7080", "http://evil.example")
    for origin in ("http://evil.example", "null", "http://localhost:8000", "http://[", ""):
        with pytest.raises(OriginRefused):
            LOCAL.check("POST", "localhost:7080", origin)
