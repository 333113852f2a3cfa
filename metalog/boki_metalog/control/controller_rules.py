"""What the leader of the controllers decides: which logs need a hand, how slots should lie, which spares may go.

Spares that nobody needs are given up in two steps (F10):

    1  the ledger is closed. A driver that looks at it from then on refuses it as a term's metalog (`term_change`).
    2  it is deleted after a later write of the view, if no term from then on has it. Who looked before the first step read
       the view before, too: his swap is of an older version and fails, or is the write that names it.

So a ledger is never deleted that a stalled driver could still install, whoever was wrong about whose death.

Pure: times and what was read are arguments.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final, NamedTuple

import msgspec

from boki_common.errors import CorruptData
from boki_common.runtime.ports import Buffer
from boki_metalog.sequencer.standby_rules import Presence
from boki_metalog.terms.view import View, decode_versioned

VERSION: Final = 1
WEIGHTS_PATH: Final = "/boki/weights"


class Weights(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What an administrator wants of the slots: JSON in `/boki/weights`. A log that is not named weighs 1."""

    version: int
    weights: dict[int, int]


class ClosedSpare(NamedTuple):
    """A spare that was closed because nobody needs it."""

    ledger_id: int
    version: int
    """Of the view, read after it was closed."""
    next_term: int
    """Of the view, read before it was seen open: earlier terms never had it."""


def encode_weights(weights: Mapping[int, int]) -> bytes:
    return msgspec.json.encode(Weights(VERSION, dict(sorted(weights.items()))))


def decode_weights(data: Buffer) -> dict[int, int]:
    """Raises VersionMismatch, CorruptData."""
    weights = decode_versioned(data, Weights, path=WEIGHTS_PATH, version=VERSION).weights
    if any(weight < 0 for weight in weights.values()):
        raise CorruptData(f"expected weights of at least 0 in {WEIGHTS_PATH}, found {weights}", path=WEIGHTS_PATH)
    return weights


def wanted_weights(view: View, stored: Mapping[int, int]) -> dict[int, int] | None:
    """The weight of each log of the view; None when no log would have any, so that nothing is to be done."""
    weights = {log: stored.get(log, 1) for log in sorted(view.logs)}
    return weights if any(weights.values()) else None


class Vacant:
    """Logs without a sequencer, and for how long. Memory of one leader."""

    def __init__(self) -> None:
        self._since: dict[tuple[int, int], float] = {}

    def due(self, view: View, presence: Mapping[int, Presence], *, grace_s: float, now_s: float) -> list[int]:
        """The logs whose present term has had no living sequencer for the grace; standbys had the time to take them.
        `presence`: of the sequencer of each log's current term."""
        since = {}
        for log in sorted(view.logs):
            if view.installed(log) is None or presence.get(log) in (Presence.OVER, Presence.GONE):
                key = (log, view.term_of(log))
                since[key] = self._since.get(key, now_s)
        self._since = since
        return [log for (log, _), first_s in since.items() if now_s - first_s >= grace_s]


class Absent:
    """Incarnations that made a spare and are not listed, and for how long. Memory of one leader."""

    def __init__(self) -> None:
        self._since: dict[str, float] = {}

    def due(self, makers: Collection[str], listed: Collection[str], *, absent_s: float, now_s: float) -> list[str]:
        """Those that were not listed, whenever it was looked, for so long."""
        self._since = {maker: self._since.get(maker, now_s) for maker in sorted(makers) if maker not in listed}
        return [maker for maker, first_s in self._since.items() if now_s - first_s >= absent_s]

    def forget(self) -> None:
        """Our own session was lost: everybody's may have been, so all counting begins again."""
        self._since.clear()


def is_named(view: View, ledger_id: int) -> bool:
    """Whether a current term has the ledger as its metalog."""
    return any(one is not None and one.metalog_ledger == ledger_id for one in view.logs.values())


def may_delete(spare: ClosedSpare, view: View, version: int, metalogs: Mapping[int, int]) -> bool | None:
    """Whether a closed spare can go: True; False: a term has it, leave it for good; None: not yet.

    Args:
        view, version: read after the spare was closed.
        metalogs: term → metalog of the records of all terms from `spare.next_term` on that are sealed.
    """
    current = {one.term: one.metalog_ledger for one in view.logs.values() if one is not None}
    known = {**metalogs, **current}
    if spare.ledger_id in known.values():
        return False
    if version <= spare.version:
        return None
    missing = [term for term in range(spare.next_term, view.next_term) if term not in known]
    return None if missing else True
