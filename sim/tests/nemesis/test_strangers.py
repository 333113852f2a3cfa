"""Strangers at every door are refused, each definitely, and whoever lets one in is found."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from boki_bookie.serve import auth_gate
from boki_common.cluster_token import ClusterToken
from boki_metalog.entries import permissions
from boki_sim.clusters.cluster_tokens import draw_tokens
from boki_sim.faults.faults import PROFILES, Fault
from boki_sim.nemesis import strangers
from boki_sim.nemesis.poison import draw_poison
from boki_sim.nemesis.strangers import KINDS, OF_CLIENT, WITHOUT, WRONG, Stranger, draw_strangers
from boki_sim.outcome import Outcome
from boki_sim.run import run_seed
from boki_sim.world.randomness import stream

pytestmark = [pytest.mark.blocking_allowed, pytest.mark.timeout(300)]  # the guard stands in; machines may be busy

WORK_S = 3.0


def seeds_with_token(*, exchanged: bool) -> list[int]:
    found = []
    for seed in range(1, 120):
        plan = draw_tokens(stream(seed, "token", "harsh"), "harsh", seconds=WORK_S)
        poisons = draw_poison(stream(seed, "poisons", "harsh"), "harsh", ["sequencer-1"], seconds=WORK_S)
        if plan.tokens and not poisons and bool(plan.changes) == exchanged:
            found.append(seed)
    return found


def visits(*kinds: int) -> list[Fault]:
    return [Fault(0.8 + 0.2 * number, "stranger", "all", amount=kind) for number, kind in enumerate(kinds)]


def visited(seed: int, monkeypatch: pytest.MonkeyPatch, *kinds: int) -> tuple[Outcome, Counter[str]]:
    """A run that nothing else befalls, and how often strangers were refused, by what they said."""
    refused: Counter[str] = Counter()
    before = Stranger._judge

    def judge(self: Stranger, what: str, wrong: str) -> None:
        refused[what] += not wrong
        before(self, what, wrong)

    monkeypatch.setattr(Stranger, "_judge", judge)
    return run_seed(seed, "harsh", script=visits(*kinds), work_s=WORK_S), refused


@pytest.mark.parametrize("exchanged", [False, True])
def test_all_of_them_are_refused_at_every_door(exchanged: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    refused: Counter[str] = Counter()
    for seed in seeds_with_token(exchanged=exchanged)[:4]:
        outcome, counted = visited(seed, monkeypatch, *KINDS, *KINDS)
        assert outcome.ok, (seed, outcome.violations)
        assert outcome.outcomes["ok"] > 10, "clients with the token get through"
        refused += counted
    said = {what.partition(":")[0] for what in refused}
    assert said >= {
        "OPEN",
        "CLOSE",
        "LOST",
        "EXPIRE",
        "TRIM",
        "YIELD",
        "APPEND",
        "HEADERS",
        "STATUS",
        "HELLO",
        "bookie",
    }
    replies = {what.partition(": ")[2] for what in refused}
    assert replies >= {"ProtocolError", "Unauthenticated", "NotPermitted", "add", "fencing read", "handshake", "token"}


def test_they_are_drawn_for_harsh_clusters_with_a_token_only() -> None:
    drawn = {one: [draw_strangers(stream(seed, "s"), one, seconds=10) for seed in range(60)] for one in PROFILES}
    assert [one for one, faults in drawn.items() if any(faults)] == ["harsh"]
    kinds = {fault.amount for faults in drawn["harsh"] for fault in faults}
    assert kinds == set(KINDS)
    without = run_seed(5, "calm", script=visits(*KINDS), work_s=1.0)
    assert without.ok
    assert not without.happened, "a cluster without a token lets everybody in"


def found(monkeypatch: pytest.MonkeyPatch, kind: int) -> list[str]:
    for seed in seeds_with_token(exchanged=False)[:4]:
        outcome, _ = visited(seed, monkeypatch, kind)
        if outcome.violations:
            return outcome.violations
    return []


def test_a_role_that_lets_in_who_shows_a_wrong_token_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    before = ClusterToken.accepts
    wrong = strangers.WRONG_TOKEN
    monkeypatch.setattr(ClusterToken, "accepts", lambda self, shown: wrong in str(shown) or before(self, shown))
    assert any("[stranger]" in text and "HELLO: Unauthenticated" in text for text in found(monkeypatch, WRONG))


def test_a_bookie_that_serves_before_the_token_was_shown_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def admitting(server: Any, token: ClusterToken, connection: Any) -> Any:
        connection.introduced()
        return server.connected(connection)

    monkeypatch.setattr("boki_bookie.bookie.admitting", admitting)
    assert auth_gate.admitting is not admitting
    assert any("said bookie: " in text for text in found(monkeypatch, WITHOUT))


def test_a_sequencer_that_takes_everything_from_everybody_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(permissions.Rights, "check_yield", lambda self: None)
    assert any("said YIELD: NotPermitted" in text for text in found(monkeypatch, OF_CLIENT))
