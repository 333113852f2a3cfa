"""What `boki status` says of who asks for the token."""

from __future__ import annotations

import pytest

from boki_cli.facts.cluster_access import access_lines, is_exposed, open_parts_of
from boki_cli.facts.cluster_facts import ClusterStatus, Part
from boki_cli.facts.cluster_faults import faults_of


def part(role: str, address: str, asks: bool | None, *, up: bool = True) -> Part:
    return Part(role, address, up, status={} if asks is None else {"asks_for_token": asks})


def cluster(*parts: Part) -> ClusterStatus:
    return ClusterStatus(
        engines=[one for one in parts if one.role == "engine"],
        sequencers=[one for one in parts if one.role == "sequencer"],
        bookies=[one for one in parts if one.role == "bookie"],
    )


@pytest.mark.parametrize(
    ("address", "exposed"),
    [
        ("127.0.0.1:7040", False),
        ("[::1]:7040", False),
        ("localhost:7040", False),
        ("unix:///run/boki", False),
        ("", False),
        ("0.0.0.0:7040", True),
        ("10.0.0.1:7040", True),
        ("a-name:7040", True),
    ],
)
def test_a_part_is_exposed_unless_its_address_is_this_machines_alone(address: str, exposed: bool) -> None:
    assert is_exposed(part("engine", address, False)) is exposed


def test_where_all_ask_that_is_said_in_a_line() -> None:
    found = cluster(part("engine", "10.0.0.1:7040", True), part("bookie", "10.0.0.2:3181", True))
    assert access_lines(found) == ["cluster token: everybody asks for it"]
    assert open_parts_of(found) == []


def test_where_nobody_asks_those_are_named_that_others_reach() -> None:
    found = cluster(part("engine", "10.0.0.1:7040", False), part("bookie", "127.0.0.1:3181", None))
    assert access_lines(found) == [
        "cluster token: nobody asks for one",
        "insecure: other machines reach engine 10.0.0.1:7040, and it asks for no cluster token",
    ]


def test_where_some_ask_each_that_does_not_is_named_and_fails_a_check() -> None:
    """Of a bookie that says nothing, too."""
    found = cluster(
        part("engine", "127.0.0.1:7040", True),
        part("sequencer", "127.0.0.1:7041", False),
        part("bookie", "10.0.0.2:3181", None),
        part("bookie", "10.0.0.3:3181", None, up=False),
    )
    lines = access_lines(found)
    assert lines[:2] == [
        "sequencer 127.0.0.1:7041 asks for no cluster token",
        "bookie 10.0.0.2:3181 asks for no cluster token",
    ]
    assert lines[2:] == ["insecure: other machines reach bookie 10.0.0.2:3181, and it asks for no cluster token"]
    faults = faults_of(found)
    assert "sequencer 127.0.0.1:7041 asks for no cluster token, though others do: start it with --token-file" in faults


def test_of_a_cluster_that_does_not_answer_nothing_is_said() -> None:
    assert access_lines(cluster(part("engine", "10.0.0.1:7040", None, up=False))) == []
