"""Hosts seen by their heartbeats and claims, and the words for partitions that no living host owns."""

from __future__ import annotations

import pytest

from bokirsm_tools.hosts import SILENT_MS, Hosts, Owner, Seen, host_text

NOW_MS = 10_000_000


def hosts(ages_ms: dict[str, int], owner: str | None = None, *, left: str = "", problem: str = "") -> Hosts:
    seen = {name: Seen(NOW_MS - age_ms, 15_000) for name, age_ms in ages_ms.items()}
    owners = {} if owner is None else {3: Owner(owner, NOW_MS - 5_000)}
    return Hosts(seen, NOW_MS, owners, frozenset([left] if left else []), problem)


@pytest.mark.parametrize(
    ("found", "words"),
    [
        (hosts({}), "no host of this app was seen"),
        (hosts({"h": SILENT_MS}, "h"), "no living host: h was seen last, 60.0 s ago"),
        (hosts({"h": 1_000}, "h", left="h"), "no living host: h was seen last, 1.0 s ago, and has left"),
        (hosts({"h": SILENT_MS - 1}, "h"), ""),
        (hosts({"g": 0, "h": SILENT_MS}, "h"), "its host h was seen last, 60.0 s ago: another host takes it over"),
        (hosts({"g": 0}, "h"), "its host h was not seen: another host takes it over"),
        (hosts({"g": 0}), "no host yet: a living host takes it"),
        (hosts({"g": 0}, ""), "no host yet: a living host takes it"),
        (hosts({"g": 0}, problem="record 7 is new"), "its host is not known: record 7 is new"),
    ],
)
def test_a_partition_that_no_living_host_owns_says_why(found: Hosts, words: str) -> None:
    assert found.text(3) == words


def test_a_host_with_a_long_lease_is_alive_for_two_of_them() -> None:
    found = Hosts({"h": Seen(NOW_MS - 500_000, 300_000)}, NOW_MS)
    assert found.living == ["h"] and found.alone == ""
    assert Hosts({"h": Seen(NOW_MS - 600_000, 300_000)}, NOW_MS).living == []


def test_programs_get_the_owner_and_the_living_hosts() -> None:
    assert hosts({"g": 0, "h": 7}, "h").facts(3) == {
        "host": "h",
        "since_ms": NOW_MS - 5_000,
        "alive": True,
        "unseen_ms": 7,
        "living_hosts": ["g", "h"],
    }
    none: dict[str, object] = {"host": None, "since_ms": None, "alive": False, "unseen_ms": None, "living_hosts": []}
    assert hosts({}, "").facts(3) == hosts({}).facts(3) == none


def test_names_of_hosts_are_short_and_printable() -> None:
    assert host_text("host-1.0123456789ab") == "host-1.01234567" and host_text("a\nb") == "a\\nb"
