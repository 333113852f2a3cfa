"""Steps of the protocols, recognised from outside: by the frames that arrive, the requests to the metadata store, the disk's work.

A step has a name. Faults may wait for one (`faults.Fault.step`), and every fault that happened is counted under the step that
its target took part in at that moment, or `IDLE`. Nothing of the code under test is asked.

What changes metadata is two steps: `asked`, on its way to the store, and `made`, with the answer on its way back.

Network, store and disks report each one to `Steps`, which notes who took part in what last, and fires the faults that wait.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from boki_common.bookkeeper import v2, v3
from boki_common.bookkeeper.ledger_metadata import LedgerState, decode
from boki_common.engine import engine_protocol
from boki_common.errors import BokiError
from boki_common.metadata.membership import MEMBERS
from boki_metalog.entries import sequencer_protocol
from boki_metalog.terms.term_record import TERMS_PATH
from boki_metalog.terms.view import VIEW_PATH
from boki_sim.world.process import SimProcess

if TYPE_CHECKING:
    from boki_sim.world.loop import SimLoop

IDLE: Final = "idle"
RECENT_S: Final = 0.05
"""Who took part in a step this long ago, or less, is in it still."""
ENTRY_CARRIED: Final = "entry carried"
"""An engine's entry comes to the sequencer, and no data ledger has it."""
BARRIER_ASKED: Final = "barrier asked"
"""An engine asks the sequencer where the log ends; what follows are repeats of a metalog entry, or a new one: "metalog add"."""
BARRIER_ANSWERED: Final = "barrier answered"
HEADS_KEPT: Final = 1_024
"""Different beginnings of frames whose steps are remembered."""

_FRAMES: Final = (
    "data add", "data ack", "metalog add", "metalog ack", "recovery add", "fencing read", "entry read", "entry answer",
    "LAC asked", "LAC answer", "append", "append answer", "read", "read answer", "shard opens",
    "progress", "shard closes", "follows", "cut pushed", "term yields", "term over", "connects",
)  # fmt: skip
_CHANGES: Final = ("ledger created", "recovery begins", "ensemble change", "ledger closes",
                   "term sealed", "view swap", "member listed", "bookie listed")  # fmt: skip
_DISKS: Final = (
    "journal write", "journal flush", "journal segment", "replay", "entry log", "index", "checkpoint", "entry from disk",
)  # fmt: skip
CHANGES: Final = tuple(f"{name} {when}" for name in _CHANGES for when in ("asked", "made"))
STEPS: Final = (*_FRAMES, ENTRY_CARRIED, BARRIER_ASKED, BARRIER_ANSWERED, *CHANGES, "session ends", *_DISKS, IDLE)
"""All names, in the order of the table."""

_SEQUENCER: Final[Mapping[int, str]] = {
    sequencer_protocol.OP_OPEN: "shard opens",
    sequencer_protocol.OP_REPORT: "progress",
    sequencer_protocol.OP_CARRY: ENTRY_CARRIED,
    sequencer_protocol.OP_CLOSE: "shard closes",
    sequencer_protocol.OP_SUBSCRIBE: "follows",
    sequencer_protocol.OP_ENTRIES: "cut pushed",
    sequencer_protocol.OP_YIELD: "term yields",
    sequencer_protocol.OP_TERM_OVER: "term over",
}
_ENGINE: Final[Mapping[tuple[int, bool], str]] = {
    (engine_protocol.OP_APPEND, False): "append",
    (engine_protocol.OP_ANSWERS, True): "append answer",
    (engine_protocol.OP_APPEND, True): "append answer",
    (engine_protocol.OP_READ, False): "read",
    (engine_protocol.OP_READ, True): "read answer",
    (engine_protocol.OP_READS, False): "read",
    (engine_protocol.OP_READS, True): "read answer",
    (engine_protocol.OP_READ_PREV_MANY, False): "read",
    (engine_protocol.OP_READ_PREV_MANY, True): "read answer",
    (engine_protocol.OP_READ_TAGS, False): "read",
    (engine_protocol.OP_READ_TAGS, True): "read answer",
}
_V3: Final[Mapping[int, str]] = {v3.OP_READ_LAC: "LAC", v3.OP_WRITE_LAC: "LAC", v3.OP_READ: "entry", v3.OP_ADD: "data"}


def of_engine(head: bytes, answer: bool) -> str:
    """The step of a frame between SDK and engine; "" if it is none."""
    return _ENGINE.get((head[1], answer), "")


def of_sequencer(head: bytes, answer: bool) -> str:
    """Of one between engine and sequencer."""
    if head[1] == sequencer_protocol.OP_BARRIER:
        return BARRIER_ANSWERED if answer else BARRIER_ASKED
    return _SEQUENCER.get(head[1], "")


def of_bookie(head: bytes, answer: bool, client: str) -> str:
    """Of one between a bookie and a client of that kind ("engine", "sequencer", …)."""
    log = "metalog" if client == "sequencer" else "data"
    operation = head[1]
    if head[0] == v3.FIRST_BYTE:
        name = _V3.get(head[5], "") if len(head) > 5 else ""
        if name == "LAC":
            return "LAC answer" if answer else "LAC asked"
        if name == "entry":
            return "entry answer" if answer else "entry read"
        return "" if not name else f"{log} ack" if answer else f"{log} add"
    if operation == v2.OP_ADD:
        if answer:
            return f"{log} ack"
        return "recovery add" if head[3] & v2.FLAG_RECOVERY_ADD else f"{log} add"
    if operation in (v2.OP_READ, v2.OP_BATCH_READ):
        return "entry answer" if answer else "fencing read" if head[3] & v2.FLAG_FENCE else "entry read"
    return ""


class StepsOfHeads(dict[bytes, str]):
    """Head → step, at one end of a connection to a bookie: there are few that differ, so each is computed once."""

    def __init__(self, step_of: Callable[[bytes], str]) -> None:
        self._step_of = step_of

    def __missing__(self, head: bytes) -> str:
        if len(self) >= HEADS_KEPT:
            self.clear()
        step = self[head] = self._step_of(head)
        return step


def of_change(path: str, value: bytes | None, before: bytes | None) -> str:
    """What a write to the store is about; `before`: what is there now, None: nothing; `value` None: a deletion."""
    if path == VIEW_PATH:
        return "view swap"
    if path.startswith(f"{TERMS_PATH}/"):
        return "term sealed"
    if path.startswith(f"{MEMBERS}/"):
        return "member listed"
    if path.startswith("/ledgers/available/"):
        return "bookie listed"
    if not path.startswith("/ledgers/") or not path.rpartition("/")[2].startswith("L") or "LAYOUT" in path:
        return ""
    return _of_ledger(value, before)


def _of_ledger(value: bytes | None, before: bytes | None) -> str:
    if value is None:
        return ""
    if before is None:
        return "ledger created"
    try:
        new, old = decode(value), decode(before)
    except BokiError:
        return ""
    if new.state is LedgerState.CLOSED:
        return "ledger closes"
    if new.state is not old.state:
        return "recovery begins"
    return "ensemble change"


@lru_cache(maxsize=4_096)
def of_disk(kind: str, name: str) -> str:
    """What an operation of a bookie's disk is for."""
    folder = name.partition("/")[0]
    if folder == "journal":
        if kind == "read":
            return "replay"
        return {"write": "journal write", "sync": "journal flush", "rename": "journal segment"}.get(kind, "")
    if folder == "entries":
        return {"write": "entry log", "sync": "entry log", "read": "entry from disk"}.get(kind, "")
    if folder == "index":
        return "index" if kind in ("write", "sync") else ""
    return "checkpoint" if folder == "CHECKPOINT" and kind == "replace" else ""


@dataclass(frozen=True, slots=True)
class Met:
    """A step that happens now: whose it is, with whom, and of which path of the metadata."""

    step: str
    actor: SimProcess
    peer: SimProcess | None = None
    path: str = ""


class Steps:
    """See the module. `counts`: step → how often it happened."""

    def __init__(self, loop: SimLoop) -> None:
        self.counts: dict[str, int] = defaultdict(int)
        self._loop = loop
        self._last: dict[SimProcess, tuple[str, float]] = {}
        self._waiting: dict[str, list[tuple[int, Callable[[Met], None]]]] = {}

    def met(self, step: str, actor: SimProcess, peer: SimProcess | None = None, path: str = "") -> None:
        """It happens now."""
        self.counts[step] += 1
        self._last[actor] = moment = (step, self._loop.now)
        if peer is not None:
            self._last[peer] = moment
        if step in self._waiting:
            self._fire(Met(step, actor, peer, path))

    def wait(self, step: str, nth: int, fire: Callable[[Met], None]) -> None:
        """Calls back, once, when the step happens for the nth time from now on."""
        self._waiting.setdefault(step, []).append((self.counts.get(step, 0) + nth, fire))

    def of(self, process: SimProcess | None) -> str:
        """What a process takes part in."""
        if process is None or process not in self._last:
            return IDLE
        step, at = self._last[process]
        return step if self._loop.now - at <= RECENT_S else IDLE

    def forget_waiting(self) -> None:
        """Nobody is called back any more."""
        self._waiting.clear()

    def _fire(self, met: Met) -> None:
        count = self.counts[met.step]
        waiting = self._waiting.pop(met.step)
        rest = [one for one in waiting if one[0] > count]
        if rest:
            self._waiting[met.step] = rest
        for due, fire in waiting:
            if due <= count:
                fire(met)
