"""Faults by name: what a seed draws, what a script says, what shrinking leaves out.

A fault is plain data: when (seconds after the workload began), what, to whom, for how long. A script is a list of them, as
JSON lines:

    {"at": 3.2, "kind": "kill", "target": "bookie-1", "seconds": 2.0, "amount": 40}

A fault with a `step` (`steps.STEPS`) waits: from its time on, for the `nth` time that the step happens anywhere. Then it meets
whoever takes part in the step, as far as its kind can; else its target. One that waits for `ENTRY_CARRIED` meets the role that
its target has: the engine has the only copy then, or the sequencer the other one.

| kind | target | amount |
|---|---|---|
| kill, power, stop | a role: killed, its machine's power cut, ended cleanly; back after `seconds` | callbacks it still runs |
| crash | a client: it is gone, and begins again as a new one | |
| pause | any process, for `seconds` | |
| isolate | a machine: nothing in or out; amount 1: nothing in, 2: nothing out | which |
| partition | "a,b": these machines from all others | as for isolate |
| deaf | an engine: it receives nothing from bookies and other engines, for `seconds`; amount 1: no other engine | which |
| clog | "a>b": one direction between two machines, for `seconds` | |
| slow-link | a machine: its links are `amount` times slower, at most some seconds | times |
| reset | "a>b": every connection between two machines | |
| roll, move | "all": somebody gives a log its next term, or moves slots between logs (`administrator`) | |
| drain | "all": somebody drains a bookie; amount 1: and cancels that after `seconds` (`administrator`) | cancels |
| fence-race | waits for a recovery whose writer lives, and lets them race (`fence_race`) | |
| slow-disk, disk-error, disk-full | a bookie | times; which operation fails; bytes left |
| flip-bits, misdirect, wipe | the seed's one bookie that may lose data | bits |
| expire, cut-off | a process: its metadata session ends; it cannot reach the store for `seconds` | |
| metadata-down | all: nobody reaches the store for `seconds` | |
| lost-answer, lost-request, delayed-write | a process: its next writes to the store | writes |
| clock | a process: its wall clock jumps by `amount` ms | ms |
| poison | a sequencer: somebody sends it, and engines, what is right but for its content; or it pushes such | what, see `poison` |
| step | a role: the same, by hours up to weeks, which no age may follow | ms |
| stranger | "all": somebody without the cluster's token, or with a client's, says what he must not, to everybody (`strangers`) | who |
| absent | a host of a user: it is never started | |
| sleep | any process: its machine is suspended for `seconds`: the clock of its loop stands still, wall clock and boot time run on | |

Pure: drawing needs numbers, applying is `nemesis`.
"""

from __future__ import annotations

import json
import random  # noqa: TID251 - the type; the generators come from the seed
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Final, NamedTuple

from boki_sim.world.errors import SimulationError
from boki_sim.world.steps import BARRIER_ANSWERED, BARRIER_ASKED, ENTRY_CARRIED, STEPS


@dataclass(frozen=True, slots=True)
class Fault:
    """See the module."""

    at: float
    kind: str
    target: str
    seconds: float = 0.0
    amount: float = 0.0
    step: str = ""
    nth: int = 1

    def __str__(self) -> str:
        lasting = f" for {self.seconds:.2f} s" if self.seconds else ""
        aimed = f" at {self.step!r} number {self.nth}" if self.step else ""
        return f"{self.at:7.3f} s  {self.kind} {self.target}{lasting} ({self.amount:g}){aimed}"


@dataclass(frozen=True, slots=True)
class Targets:
    """Whom the faults of a run may meet."""

    bookies: tuple[str, ...]
    sequencers: tuple[str, ...]
    engines: tuple[str, ...]
    clients: tuple[str, ...]
    lossy: str
    """The one bookie that may lose what it acknowledged: replication promises no more."""
    controllers: tuple[str, ...] = ()

    @property
    def roles(self) -> tuple[str, ...]:
        return self.bookies + self.sequencers + self.engines + self.controllers

    @property
    def everybody(self) -> tuple[str, ...]:
        return self.roles + self.clients


PROCESSES: Final = ("kill", "power", "stop", "crash", "pause")
CONNECTIONS: Final = ("isolate", "partition", "deaf", "clog", "slow-link", "reset", "fence-race")
DISKS: Final = ("slow-disk", "disk-error", "disk-full")
DAMAGE: Final = ("flip-bits", "misdirect", "wipe")
METADATA: Final = ("expire", "cut-off", "metadata-down", "lost-answer", "lost-request", "delayed-write")
CLOCKS: Final = ("clock",)
ADMINISTRATION: Final = ("roll", "move")
"""No faults, but changes that must hold among them."""
DRAINS: Final = ("drain",)
"""Drawn by `drains`, for clusters that repair, by numbers of their own."""
POISONS: Final = ("poison",)
"""Drawn by `poison.draw_poison`, beside all others."""
DRAWN: Final = PROCESSES + CONNECTIONS + DISKS + DAMAGE + METADATA + CLOCKS + ADMINISTRATION
SLEEP: Final = ("step", "sleep")
"""Drawn by `asleep`, by numbers of their own, so that no other fault of a seed changes."""
ELSEWHERE: Final = ("stranger", "absent")
"""Drawn by `strangers`, for clusters that have a token; and never drawn."""
KINDS: Final = DRAWN + DRAINS + POISONS + SLEEP + ELSEWHERE

PROFILES: Final[Mapping[str, tuple[str, ...]]] = {
    "calm": (),
    "network": (*CONNECTIONS, "pause", "crash"),
    "disk": (*DISKS, *DAMAGE, "kill", "power"),
    "metadata": (*METADATA, *ADMINISTRATION, "kill", "pause", "stop"),
    "harsh": DRAWN,
    "full-disks": (*DISKS, "kill", "power", "stop", "pause"),
}
"""Kinds that a profile draws from. Each seed takes some of them."""


DRAINS_MOST: Final = 3


class _Way(NamedTuple):
    """Steps that faults wait for, and what leads to them."""

    steps: tuple[str, ...]
    nth: int
    """Faults wait for one of the first so many."""
    means: tuple[str, ...] = ()
    """Kinds of faults that lead there, of which one is put before; () if the steps come by themselves."""
    role: str = ""
    """Whom they meet."""
    weight: int = 2
    """How often faults wait for one of these steps, beside others."""


_WAYS: Final = (
    _Way(("data add", "data ack", "metalog add", "metalog ack", "entry read", "entry answer", "append", "append answer",
          "read", "read answer", "progress", "cut pushed", "connects", "journal write", "journal flush", "LAC asked",
          "LAC answer"), 30),
    _Way(("entry log", "index", "checkpoint", "entry from disk", "journal segment"), 2),
    _Way(("view swap asked", "view swap made", "term sealed asked", "term sealed made", "ledger closes asked",
          "ledger closes made", "follows", "member listed asked", "member listed made"), 1, ("stop", "kill", "roll"), "sequencers", 5),
    _Way(("term yields",), 1, ("roll",), "sequencers", 1),
    _Way(("recovery begins asked", "recovery begins made", "fencing read", "recovery add", "term over", "shard opens"),
         1, ("split", "power"), "sequencers", 4),
    _Way(("shard opens", "shard closes", "ledger created asked", "ledger created made"), 2, ("stop", "kill"), "engines"),
    _Way(("replay", "ensemble change asked", "ensemble change made", "bookie listed asked", "bookie listed made"),
         1, ("kill", "power"), "bookies", 4),
    _Way(("session ends",), 1, ("expire",), "roles", 1),
)  # fmt: skip
WAITED_FOR: Final = tuple(dict.fromkeys(step for way in _WAYS for step in way.steps))
"""All steps, but to be idle, and what only some clusters do."""
SURE: Final = ("kill", "pause", "isolate", "clog")
"""Kinds that happen to whoever takes the step."""
EARLY: Final = 0.3
"""What has to be led to waits from this part of its time on, so that it comes within the run."""

WHILE_CARRIED: Final = ("kill", "kill", "power", "stop", "pause", "isolate", "clog")
"""Kinds that meet who has an entry carried, or carries it."""
CARRIED_MOST: Final = 4
"""So many of them, at most, in a run."""
CARRIED_CALLBACKS: Final = 40
"""Who is killed then still runs up to so many."""

AT_BARRIERS: Final = ("kill", "power", "stop", "pause", "isolate", "partition", "clog", "reset", "slow-link")
"""Kinds that meet a sequencer or an engine while one asks the other where the log ends."""
AT_BARRIERS_MOST: Final = 4
"""So many of them, at most, in a run."""

STEPS_MOST: Final = 3
SLEEPS_MOST: Final = 4
"""So many of each, at most, in a run."""

MEAN_GAP_S: Final = (0.1, 0.2, 0.4, 1.0, 2.0)
"""One of these is a seed's mean time between two faults."""
AIMED: Final = (0.0, 0.6, 0.9, 1.0)
"""One of these is a seed's share of faults that wait for a step."""


def draw(
    numbers: random.Random,
    profile: str,
    targets: Targets,
    *,
    seconds: float,
    turn: int | None = None,
    carrying: bool = False,
) -> list[Fault]:
    """A script: a mix of kinds and an intensity of the seed's own (swarm testing: not every fault in every run).

    Args:
        turn: one fault more waits for this one of all steps, counted round: so that no step is left to chance.
        carrying: engines have entries carried. Some faults more meet them; all others are the same without.
    """
    if profile not in PROFILES:
        raise SimulationError(f"expected a profile of {', '.join(PROFILES)}, found {profile!r}")
    allowed = PROFILES[profile]
    if not allowed:
        return []
    kinds = [kind for kind in allowed if numbers.random() < 0.5] or [numbers.choice(allowed)]
    script = []
    racing = "fence-race" in kinds
    if racing:  # once a run
        script += _fence_race(numbers.uniform(0.1, 0.5) * seconds, targets)
        kinds.remove("fence-race")
    if "deaf" in kinds:
        script += _deaf_to_each_other(numbers, seconds, targets)
    kinds = kinds or [numbers.choice(PROCESSES)]
    weights = [numbers.random() + 0.05 for _ in kinds]
    gap_s = numbers.choice(MEAN_GAP_S) if not racing else MEAN_GAP_S[-1]  # a race needs others to live
    aimed = numbers.choice(AIMED)
    at = numbers.expovariate(1 / gap_s)
    while at < seconds:
        kind = numbers.choices(kinds, weights)[0]
        fault = _fault(numbers, at, kind, targets)
        if numbers.random() < aimed:
            script.extend(_aimed(numbers, fault, allowed, targets))
        else:
            script.append(fault)
        at += numbers.expovariate(1 / gap_s)
    if turn is not None:
        script += _owed(numbers, WAITED_FOR[turn % len(WAITED_FOR)], allowed, targets, seconds)
    if carrying:
        script += _while_carried(numbers, allowed, targets, seconds)
    return sorted(script, key=lambda fault: fault.at)


def _owed(numbers: random.Random, step: str, allowed: Sequence[str], targets: Targets, seconds: float) -> list[Fault]:
    """A fault that surely happens once its step does, and whatever of the profile leads to that step."""
    way = next(way for way in _WAYS if step in way.steps)
    kind = numbers.choice([kind for kind in SURE if kind in allowed])
    at = round(numbers.uniform(0.0, EARLY) * seconds, 4)
    fault = replace(_fault(numbers, at, kind, targets), step=step, nth=numbers.randrange(min(way.nth, 3)) + 1)
    return [
        replace(fault, amount=0.0, seconds=min(fault.seconds, 2.0)),
        *_lead(numbers, way, at, way.means, allowed, targets),
    ]


def _while_carried(numbers: random.Random, allowed: Sequence[str], targets: Targets, seconds: float) -> list[Fault]:
    """Engines end, or are cut off, before their data ledger has what they had carried; or the sequencer that carries it does.

    Engines that stay away for long have others close their ledgers; now and then the metalog's term ends meanwhile."""
    kinds = [kind for kind in WHILE_CARRIED if kind in allowed]
    script = []
    for _ in range(numbers.randrange(1, CARRIED_MOST + 1)):
        kind = numbers.choice(kinds)
        of_sequencer = numbers.random() < 0.2
        target = numbers.choice(targets.sequencers if of_sequencer else targets.engines)
        if kind == "clog":
            target = f"{target}>{numbers.choice(targets.bookies)}"
        at, lasting = round(numbers.uniform(0.0, 0.8) * seconds, 4), round(numbers.uniform(0.2, 8.0), 3)
        amount = float(numbers.randrange(CARRIED_CALLBACKS)) if kind == "kill" else 0.0
        script.append(Fault(at, kind, target, lasting, amount, ENTRY_CARRIED, numbers.randrange(8) + 1))
        if numbers.random() < 0.25 and "roll" in allowed:
            script.append(Fault(at, "roll", "all", step=ENTRY_CARRIED, nth=script[-1].nth))
    return script


def at_barriers(numbers: random.Random, profile: str, targets: Targets, *, seconds: float) -> list[Fault]:
    """In one run of three: faults beside all others that wait for a barrier, or a sequencer that does not answer (`unaware`).

    Their numbers are their own, so that no other fault of a seed changes.
    """
    kinds = [kind for kind in AT_BARRIERS if kind in PROFILES[profile]]
    if not kinds or numbers.random() < 0.67:
        return []
    if {"cut-off", "deaf", "clog"} <= {*PROFILES[profile]} and numbers.random() < 0.3:
        return unaware(numbers, seconds, targets)
    script = []
    for _ in range(numbers.randrange(1, AT_BARRIERS_MOST + 1)):
        at = round(numbers.uniform(0.0, 0.8) * seconds, 4)
        fault = _fault(numbers, at, numbers.choice(kinds), targets)
        step, nth = numbers.choice((BARRIER_ASKED, BARRIER_ANSWERED)), numbers.randrange(20) + 1
        amount = float(numbers.randrange(40)) if fault.kind in PROCESSES else fault.amount
        script.append(replace(fault, amount=amount, step=step, nth=nth))
    return sorted(script, key=lambda fault: fault.at)


def asleep(numbers: random.Random, profile: str, targets: Targets, *, seconds: float) -> list[Fault]:
    """In half of the harsh runs, beside all others: clocks that step by hours, forwards and back, and machines that sleep.

    Sequencers step most: the log's time is theirs. Some machines sleep while an entry is on its way."""
    if profile != "harsh" or numbers.random() < 0.5:
        return []
    script = []
    for _ in range(numbers.randrange(1, STEPS_MOST + 1)):
        step_ms = numbers.choice((-1, 1, 1)) * round(10 ** numbers.uniform(-0.3, 2.8) * 3_600_000)
        target = numbers.choice(targets.sequencers if numbers.random() < 0.7 else targets.roles)
        script.append(Fault(round(numbers.uniform(0.0, 0.8) * seconds, 4), "step", target, 0.0, step_ms))
    for _ in range(numbers.randrange(SLEEPS_MOST + 1)):
        target = numbers.choice(numbers.choice((targets.engines, targets.clients, targets.everybody)))
        at, lasting = round(numbers.uniform(0.0, 0.8) * seconds, 4), round(numbers.uniform(0.5, 10.0), 3)
        step = numbers.choice(("", "", "append", "data add", "data ack", "progress"))
        script.append(Fault(at, "sleep", target, lasting, 0.0, step, numbers.randrange(20) + 1 if step else 1))
    return sorted(script, key=lambda fault: fault.at)


def drains(numbers: random.Random, profile: str, *, seconds: float) -> list[Fault]:
    """In three of four runs, beside all others: bookies are drained, and every other drain is cancelled after a while."""
    if not PROFILES[profile] or numbers.random() < 0.25:
        return []
    script = []
    for _ in range(numbers.randrange(1, DRAINS_MOST + 1)):
        at, lasting = round(numbers.uniform(0.0, 0.7) * seconds, 4), round(numbers.uniform(0.0, 4.0), 3)
        script.append(Fault(at, "drain", "all", lasting, float(numbers.randrange(2))))
    return sorted(script, key=lambda fault: fault.at)


def _lead(
    numbers: random.Random, way: _Way, at: float, means: Sequence[str], allowed: Sequence[str], targets: Targets
) -> list[Fault]:
    """One of the means that a profile allows."""
    possible = [kind for kind in means if kind in allowed or (kind == "split" and "clog" in allowed)]
    if not possible:
        return []
    kind = numbers.choice(possible)
    if kind == "split":
        return _split(at, targets)
    if kind in ADMINISTRATION:
        return [Fault(at, kind, "all")]
    target: str = numbers.choice(getattr(targets, way.role))
    return [Fault(at, kind, target, round(numbers.uniform(0.3, 4.0), 3), 0.0)]


def _fence_race(at: float, targets: Targets) -> list[Fault]:
    """The race, and what makes somebody recover the metalog of a sequencer that lives."""
    return [Fault(round(at, 4), "fence-race", "all", step="recovery begins asked"), *_split(round(at, 4), targets)]


def _deaf_to_each_other(numbers: random.Random, seconds: float, targets: Targets) -> list[Fault]:
    """Engines receive nothing from each other for seconds: entries of others that a cut orders they then read from the bookies.

    With slow sequencers, cuts order entries of several engines; with slow bookies, reading takes long: in between, half a cut is
    there.
    """
    at, lasting = round(numbers.uniform(0.0, 0.5) * seconds, 4), round(numbers.uniform(0.2, 0.5) * seconds, 3)
    script = [Fault(at, "deaf", one, lasting, 1.0) for one in targets.engines]
    for names, most in ((targets.sequencers, 50), (targets.bookies, 20)):
        times = round(numbers.uniform(2, most), 1)
        if numbers.random() < 0.7:
            script += [Fault(at, "slow-link", one, lasting, times) for one in names]
    return script


def _split(at: float, targets: Targets) -> list[Fault]:
    """The first sequencer and the others, or an engine, receive nothing from each other."""
    others = targets.sequencers[1:] or targets.engines[:1]
    pairs = [(targets.sequencers[0], other) for other in others] + [(other, targets.sequencers[0]) for other in others]
    return [Fault(at, "clog", f"{one}>{other}", 8.0) for one, other in pairs]


def unaware(numbers: random.Random, seconds: float, targets: Targets) -> list[Fault]:
    """A sequencer that does not learn that its term is over, and an engine that goes on asking it where the log ends.

    Both are cut off from the metadata, and from whoever takes the term over. The engine receives nothing from bookies, so it
    orders nothing from which the sequencer would know. In half of the scripts one bookie is cut off from whoever recovers, and
    is the only one that the sequencer reaches: that one is not fenced.
    """
    at, lasting = round(numbers.uniform(0.05, 0.2) * seconds, 4), round(numbers.uniform(0.5, 0.8) * seconds, 3)
    sequencer, engine = targets.sequencers[0], targets.engines[0]
    drivers = targets.sequencers[1:] + targets.controllers
    pairs = [(sequencer, one) for one in drivers + targets.engines[1:]]
    if numbers.random() < 0.5:
        near, *far = numbers.sample(targets.bookies, len(targets.bookies))
        pairs += [(sequencer, one) for one in far] + [(one, near) for one in drivers]
    script = [Fault(at, "cut-off", one, lasting) for one in (sequencer, engine)]
    script.append(Fault(at, "deaf", engine, lasting))
    for one, other in pairs:
        script += [Fault(at, "clog", f"{one}>{other}", lasting), Fault(at, "clog", f"{other}>{one}", lasting)]
    return script


def _aimed(numbers: random.Random, fault: Fault, allowed: Sequence[str], targets: Targets) -> list[Fault]:
    """The fault, at a step; and with it, now and then, what leads to that step."""
    way = numbers.choices(_WAYS, [way.weight for way in _WAYS])[0]
    amount = float(numbers.randrange(12)) if fault.kind in ("kill", "power", "stop", "crash") else fault.amount
    at = round(fault.at * EARLY, 4) if way.means else fault.at
    aimed = replace(fault, at=at, step=numbers.choice(way.steps), nth=numbers.randrange(way.nth) + 1, amount=amount)
    if numbers.random() < 0.2:
        return [aimed]
    return [aimed, *_lead(numbers, way, at, way.means, allowed, targets)]


def _fault(numbers: random.Random, at: float, kind: str, targets: Targets) -> Fault:
    lasting = min(15.0, numbers.expovariate(1 / 2.5))
    seconds, amount = round(lasting, 3), 0.0
    if kind in ("kill", "power", "stop"):
        target, amount = numbers.choice(targets.roles), float(numbers.randrange(300))
    elif kind == "crash":
        target, amount = numbers.choice(targets.clients), float(numbers.randrange(300))
    elif kind == "isolate":
        target, amount = numbers.choice(targets.everybody), float(numbers.randrange(3))
    elif kind == "partition":
        size = numbers.randrange(1, max(2, len(targets.everybody) // 2))
        target, amount = ",".join(numbers.sample(targets.everybody, size)), float(numbers.randrange(3))
    elif kind == "deaf":
        target, amount = numbers.choice(targets.engines), float(numbers.randrange(2))
    elif kind in ("clog", "reset"):
        target = ">".join(numbers.sample(targets.everybody, 2))
    elif kind == "slow-link":
        target, amount = numbers.choice(targets.everybody), round(numbers.uniform(2, 400), 1)
    elif kind in DISKS:
        target, amount = numbers.choice(targets.bookies), _disk_amount(numbers, kind)
    elif kind in DAMAGE:
        target, amount = targets.lossy, float(numbers.randrange(1, 20))
    elif kind == "metadata-down" or kind in ADMINISTRATION:
        target = "all"
    elif kind in METADATA:
        target, amount = numbers.choice(targets.roles), float(numbers.randrange(1, 4))
    else:
        target, amount = numbers.choice(targets.everybody), round(numbers.gauss(0, 60_000), 0)
    return Fault(round(at, 4), kind, target, seconds, amount)


def _disk_amount(numbers: random.Random, kind: str) -> float:
    if kind == "slow-disk":
        return round(numbers.uniform(2, 500), 1)
    if kind == "disk-full":
        return float(numbers.randrange(0, 40_000))
    return float(numbers.randrange(len(FAILING)))


FAILING: Final = ("write", "sync", "read", "replace", "open", "rename", "remove", "read_all")
"""Kinds of disk operations that a `disk-error` may name by its amount."""


def to_text(script: Sequence[Fault]) -> str:
    """One JSON object a line."""
    return "".join(json.dumps(asdict(fault)) + "\n" for fault in script)


def from_text(text: str) -> list[Fault]:
    """Reads what `to_text` wrote, or a person. Raises SimulationError naming the line."""
    script = []
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        try:
            fault = Fault(**json.loads(line))
        except (ValueError, TypeError) as error:
            raise SimulationError(f"line {number} of the script is no fault: {error}: {line[:200]}") from error
        if fault.step and fault.step not in STEPS:
            raise SimulationError(f"line {number} of the script: expected a step of {STEPS}, found {fault.step!r}")
        if fault.kind not in KINDS:
            raise SimulationError(
                f"line {number} of the script: expected one of {', '.join(KINDS)}, found {fault.kind!r}"
            )
        script.append(fault)
    return sorted(script, key=lambda fault: fault.at)
