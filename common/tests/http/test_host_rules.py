"""Pages in somebody's browser do not reach the HTTP servers of this machine, however wide these are bound."""

from __future__ import annotations

import pytest

from boki_common.errors import UsageError, to_wire
from boki_common.http.host_rules import HostRefused, HostRules, OriginRefused

LOCAL = HostRules("127.0.0.1", ())
WIDE = HostRules("0.0.0.0", ())
NAMED = HostRules("Log-1.example", ("log.example.", "[fd00::1]"))


def asked(host: str | None, **more: str) -> dict[str, str]:
    """Headers: `Sec_Fetch_Site=` for Sec-Fetch-Site."""
    headers = {name.replace("_", "-"): value for name, value in more.items()}
    return headers if host is None else {"Host": host, **headers}


@pytest.mark.parametrize("rules", [LOCAL, WIDE, HostRules("::", ()), NAMED])
@pytest.mark.parametrize(
    "host",
    ["127.0.0.1:7080", "localhost", "LOCALHOST.:1", "[::1]:7080", "10.0.0.5:7080", "[fe80::1%25eth0]", "[fd00::1]"],
)
def test_addresses_and_localhost_are_answered_whatever_is_bound(rules: HostRules, host: str) -> None:
    rules.check("POST", asked(host))
    rules.check("POST", asked(host, Origin=f"http://{host}"))


@pytest.mark.parametrize("rules", [LOCAL, WIDE, HostRules("::", ()), NAMED])
@pytest.mark.parametrize(
    "host",
    [None, "", "evil.example:7080", "127.0.0.1.evil.example", "[::1", "localhost:x@evil", "1@127.0.0.1", "127.1", "localhost/x"],
)  # fmt: skip
@pytest.mark.parametrize("method", ["GET", "POST"])
def test_any_other_name_is_refused_whatever_is_bound(rules: HostRules, host: str | None, method: str) -> None:
    """A page of evil.example whose name was made to mean this address is of the same origin."""
    with pytest.raises(HostRefused, match=r"expected Host to be an IP address or .*localhost.*setting allowed_hosts"):
        rules.check(method, asked(host, Origin=f"http://{host}"))


def test_the_name_listened_on_and_those_of_the_settings_are_answered() -> None:
    for host in ("log.example:80", "LOG-1.example.:7080"):
        NAMED.check("GET", asked(host))
    assert NAMED.names == {"localhost", "log.example", "log-1.example"}


def test_no_setting_allows_every_name() -> None:
    with pytest.raises(HostRefused):
        HostRules("0.0.0.0", ("*",)).check("GET", asked("whatever.example"))


@pytest.mark.parametrize("method", ["GET", "HEAD", "OPTIONS", "POST", "PUT", "DELETE"])
@pytest.mark.parametrize("origin", ["http://evil.example", "null", "http://localhost:8000", "http://[", ""])
def test_a_page_of_another_origin_is_refused_reads_too(method: str, origin: str) -> None:
    with pytest.raises(OriginRefused, match="expected a program, or a page of this server, found a page of"):
        LOCAL.check(method, asked("localhost:7080", Origin=origin))


@pytest.mark.parametrize("scheme", ["http", "https", "HTTP"])
def test_own_pages_may_change_things_behind_a_proxy_with_tls_too(scheme: str) -> None:
    LOCAL.check("POST", asked("localhost:7080", Origin=f"{scheme}://localhost:7080", Sec_Fetch_Site="same-origin"))


@pytest.mark.parametrize("site", ["cross-site", "same-site", "anything"])
@pytest.mark.parametrize(
    ("method", "mode", "target"),
    [("GET", "no-cors", "image"), ("GET", "navigate", "iframe"), ("POST", "navigate", "document"), ("GET", "cors", "empty")],
)  # fmt: skip
def test_what_another_page_loads_is_refused(site: str, method: str, mode: str, target: str) -> None:
    headers = asked("localhost:7080", Sec_Fetch_Site=site, Sec_Fetch_Mode=mode, Sec_Fetch_Dest=target)
    with pytest.raises(OriginRefused, match="Sec-Fetch-Site"):
        LOCAL.check(method, headers)


def test_a_link_that_a_person_follows_is_answered() -> None:
    headers = asked("localhost:7080", Sec_Fetch_Site="cross-site", Sec_Fetch_Mode="navigate", Sec_Fetch_Dest="document")
    LOCAL.check("GET", headers)
    LOCAL.check(
        "GET", asked("localhost:7080", Sec_Fetch_Site="none", Sec_Fetch_Mode="navigate", Sec_Fetch_Dest="document")
    )


@pytest.mark.parametrize("headers", [{"Host": "127.0\udcd2.1"}, {"Host": "localhost", "Origin": "http://\udcff"}])
def test_what_is_refused_can_be_printed_whatever_bytes_it_has(headers: dict[str, str]) -> None:
    """A header's bytes that are no UTF-8 reach us as halves of characters, which nothing encodes."""
    with pytest.raises(UsageError) as raised:
        LOCAL.check("GET", headers)
    assert b"\\udc" in to_wire(raised.value)
