"""Models of trimming workflows, over the library's own rules (`collect_rules`, `instance_state`).

One id: it ends, its end is rewritten, it is forgotten and started again, with two collectors, each of which may stop between any two
steps and continue with old knowledge. No start within retention is refused as expired, the id runs once in that time and is found by its
attribute, and from every state a collector that runs alone trims all of it.

One partition: starts by its owners and by others, its checkpoints, takeovers, and owners that do not know that they were replaced. A new
owner finds all instances that have not ended.

If a rule is turned off, the search finds an execution that breaks this.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import pytest

from bokiflow.history.instance_state import PartitionFold, checkpoint
from bokiflow.model.flow_events import Ended
from bokiflow.model.outcomes import Outcome
from bokiflow.retention import collect_rules
from bokiflow.retention.collect_rules import EndedWorkflow, FenceContent
from bokilib.retention.checkpoint_rules import Ages
from libs.tests.models.search import search

AGES = Ages(grace_ms=0, retention_ms=3, forget_ms=1, carry_ms=2)
NOTHING = FenceContent()
ROUNDS = 12
"""Ticks in which a collector that runs alone trims everything."""


@dataclass(frozen=True)
class Rules:
    """Each broken variant turns one off.

    Attributes:
        joins: a tomb joins the partition's stream. keeps_time: it has the time of the end. expects: it expects what it replaces.
        seen: the partition's stream is trimmed after the id was seen to be forgotten.
        attributes: it is also trimmed after the streams of attributes.
    """

    joins: bool = True
    keeps_time: bool = True
    expects: bool = True
    seen: bool = True
    attributes: bool = True


@dataclass(frozen=True)
class ModelRecord:
    """A record: of o (the fence), d (what ended in the partition), a (an attribute)."""

    seqnum: int
    time: int
    streams: str
    kind: str
    start: int
    done: int = 0


@dataclass(frozen=True)
class Collector:
    """A collector: its knowledge and its next step."""

    step: str = "idle"
    over: ModelRecord | None = None
    own: FenceContent = NOTHING
    place: int = 0
    now: int = 0


@dataclass(frozen=True)
class Id:
    """The log of one id, and the next step of each process. `log_forgets`: the age at which the log forgets what is empty."""

    rules: Rules
    starts: int
    crashes: int
    ticks: int
    collectors: tuple[Collector, ...]
    log_forgets: int = 0
    now: int = 0
    log: tuple[ModelRecord, ...] = ()
    marks: tuple[int, int, int] = (0, 0, 0)
    gone: int = 0
    wrong: str | None = None

    def rows(self, stream: str) -> list[ModelRecord]:
        mark = self.marks["oda".index(stream)]
        after = self.gone if stream == "o" else 0
        return [row for row in self.log if stream in row.streams and row.seqnum >= mark and row.seqnum > after]

    def newest(self) -> int:
        return max((row.seqnum for row in self.log if "o" in row.streams and row.seqnum > self.gone), default=0)

    def own(self, place: int) -> FenceContent:
        rows = [row for row in self.rows("o") if row.seqnum <= place]
        if not rows:
            return FenceContent(emptied=self.newest() > 0)
        return FenceContent(rows[-1].seqnum, start=rows[-1].start if rows[-1].kind != "S" else 0, oldest=rows[0].seqnum)

    def appended(self, streams: str, kind: str, start: int = 0, done: int = 0) -> Id:
        row = ModelRecord(len(self.log) + 1, self.now, streams, kind, start or len(self.log) + 1, done)
        return replace(self, log=(*self.log, row))

    def trimmed(self, stream: str, before: int, *, forget: bool = False) -> Id:
        at = "oda".index(stream)
        world = replace(self, marks=tuple(max(m, before) if n == at else m for n, m in enumerate(self.marks)))  # type: ignore[arg-type]
        newest = world.newest()
        if forget and newest and not world.rows("o") and self.now - self.log[newest - 1].time > self.log_forgets:
            return replace(world, gone=newest)
        return world

    # -- what must be so

    def fault(self) -> str | None:
        if self.wrong:
            return self.wrong
        last = next((row for row in reversed(self.log) if row.kind == "S"), None)
        if last is None:
            return None
        done = next((row for row in self.log if row.kind == "D" and row.start == last.start), None)
        if done is None or self.now - done.time < AGES.retention_ms:
            if done is not None and not any(row.kind in "DT" and row.start == last.start for row in self.rows("o")):
                return "a result is lost within retention"
            if not any(row.start == last.start for row in self.rows("a")):
                return "it is not found by its attribute"
        if (
            done is not None
            and self.now == self.ticks
            and all(collector.step == "idle" for collector in self.collectors)
        ):
            return self._left()
        return None

    def _left(self) -> str | None:
        """Return the records that a collector leaves if it runs alone."""
        world = self
        for _ in range(ROUNDS):
            world = replace(world, now=world.now + 1, ticks=world.now + 2)
            for _ in range(8):
                after = next((after for step, after in world.moves() if step.startswith("0 ")), None)
                world = world if after is None else after
        left = [stream for stream in "oda" if world.rows(stream)]
        return f"left for ever: {left}" if left or world.newest() else None

    # -- what may happen

    def moves(self) -> Iterator[tuple[str, Id]]:
        if self.now < self.ticks:
            yield "time", replace(self, now=self.now + 1)
        if self.starts:
            yield from self._started()
        rows = self.rows("o")
        if rows and rows[-1].kind == "S":
            yield "it ends", self.appended("od", "D", rows[-1].start, self.now)
        for at, collector in enumerate(self.collectors):
            for step, world, after in self._of(collector):
                yield f"{at} {step}", replace(world, collectors=_with(world.collectors, at, after))
            if self.crashes and collector.step != "idle":
                yield (
                    f"crash of {at}",
                    replace(self, crashes=self.crashes - 1, collectors=_with(self.collectors, at, Collector())),
                )

    def _started(self) -> Iterator[tuple[str, Id]]:
        last = next((row for row in reversed(self.log) if row.kind in "SD"), None)
        within = last is not None and (last.kind == "S" or self.now - last.time < AGES.retention_ms)
        world = replace(self, starts=self.starts - 1)
        if not self.newest():
            started = world.appended("oa", "S")
            yield "start", replace(started, wrong="it runs twice within retention" if within else None)
        elif not self.rows("o"):
            yield "start", replace(world, wrong="expired within retention" if within else None)

    def _of(self, collector: Collector) -> Iterator[tuple[str, Id, Collector]]:
        if collector.step == "idle":
            rows = self.rows("d")
            if rows:
                looked = Collector("looked", rows[0], self.own(len(self.log)), len(self.log), self.now)
                yield "looks", self, looked
            return
        assert collector.over is not None
        over = collector.over
        if collector.step == "looked":
            fate = self._fate(collector)
            if fate == "keep":
                yield "keeps", self, Collector()
            elif fate == "tomb":
                if self.rules.expects and self.newest() != over.seqnum:
                    yield "is late", self, Collector()
                else:
                    done = over.done if self.rules.keeps_time else self.now
                    world = self.appended("oda" if self.rules.joins else "oa", "T", over.start, done)
                    yield "repeats it", world, replace(collector, step="own", place=len(world.log))
            elif fate == "trim":
                yield "sees it repeated", self, replace(collector, step="own", place=collector.own.newest)
            elif fate == "forget":
                yield "forgets", self.trimmed("o", collector.place + 1, forget=True), replace(collector, step="see")
            else:
                yield "drops", self, replace(collector, step="tidy")
        elif collector.step == "own":
            yield "trims the fence", self.trimmed("o", collector.place), replace(collector, step="tidy")
        elif collector.step == "see":
            gone = not self.newest() or not self.rules.seen
            yield "sees", self, replace(collector, step="tidy") if gone else Collector()
        elif collector.step == "tidy":
            yield "tidies", self._tidied() if self.rules.attributes else self, replace(collector, step="done")
        else:
            yield "trims", self.trimmed("d", over.seqnum + 1), Collector()

    def _fate(self, collector: Collector) -> str:
        over = collector.over
        assert over is not None
        ended = Ended("x", over.start, "n", "d", Outcome(), 0)
        one = EndedWorkflow("x", 0, over.seqnum, over.time, over.done, ended)
        return collect_rules.fate(one, collector.own, collector.now, AGES, pressing=False)

    def _tidied(self) -> Id:
        own = self.own(len(self.log))
        kept = [row.seqnum for row in self.rows("a") if 0 < own.oldest <= row.seqnum]
        return self.trimmed("a", min(kept, default=len(self.log) + 1))


def _with(collectors: tuple[Collector, ...], at: int, collector: Collector) -> tuple[Collector, ...]:
    return (*collectors[:at], collector, *collectors[at + 1 :])


@pytest.mark.parametrize("log_forgets", [0, 3])
def test_an_id_is_remembered_while_it_has_to_be_and_no_longer(log_forgets: int) -> None:
    """Also where the log forgets later than the library thinks."""
    found = search(
        Id(Rules(), starts=2, crashes=1, ticks=4, collectors=(Collector(), Collector()), log_forgets=log_forgets)
    )
    assert (found.fault, found.path) == (None, [])
    assert found.states > 5_000


@pytest.mark.parametrize("rule", ["joins", "keeps_time", "expects", "seen", "attributes"])
def test_without_a_rule_an_id_is_forgotten_early_or_never(rule: str) -> None:
    rules = replace(Rules(), **{rule: False})
    found = search(
        Id(rules, starts=2, crashes=1, ticks=6, collectors=(Collector(), Collector()), log_forgets=3 * (rule == "seen"))
    )
    assert found.fault is not None and found.path


# -- a partition


@dataclass(frozen=True)
class PartitionRules:
    """Each broken variant turns one off.

    Attributes:
        fence: a checkpoint expects the claim of the partition's owner; without it nothing is lost either.
        covers: it stands for the records that its writer had seen, and no later ones.
        read: the instances that have not ended are read up to `covers`, not taken from what the owner had received.
    """

    fence: bool = True
    covers: bool = True
    read: bool = True


@dataclass(frozen=True)
class Owner:
    """An owner of the partition, perhaps replaced without knowing it: its claim, the records it received, and a checkpoint to append."""

    claim: int
    received: tuple[str, ...] = ()
    made: tuple[tuple[tuple[str, int], ...], int] | None = None
    trims: int = 0


@dataclass(frozen=True)
class Partition:
    """The log of a partition: S starts, D ends, P claims, K checkpoints."""

    rules: PartitionRules
    starts: int
    checkpoints: int
    takeovers: int
    owners: tuple[Owner, ...] = (Owner(1),)
    log: tuple[tuple[str, str, tuple[tuple[str, int], ...], int], ...] = (("P", "", (), 0),)
    mark: int = 0

    def alive(self) -> set[str]:
        over = {id for kind, id, _, _ in self.log if kind == "D"}
        return {id for kind, id, _, _ in self.log if kind == "S" and id not in over}

    def claim(self) -> int:
        return max(at for at, row in enumerate(self.log, 1) if row[0] == "P")

    def found(self) -> set[str]:
        """Return the state that a takeover finds now: the records that are not trimmed, folded by the library."""
        fold = PartitionFold()
        for at, (kind, id, kept, covers) in enumerate(self.log, 1):
            if at < self.mark:
                continue
            if kind == "S":
                fold.started(at, at, id)
            elif kind == "K":
                for part in checkpoint("g", 0, dict(kept), covers, 0):
                    fold.checkpointed(at, "w", part)
        return set(fold.ids)

    def fault(self) -> str | None:
        lost = self.alive() - self.found()
        return f"nobody finds {sorted(lost)}" if lost else None

    def moves(self) -> Iterator[tuple[str, Partition]]:
        if self.starts:
            id = f"x{self.starts}"
            begun = replace(self, starts=self.starts - 1, log=(*self.log, ("S", id, (), 0)))
            yield f"{id} is started", begun
        for id in sorted(self.alive()):
            yield f"{id} ends", replace(self, log=(*self.log, ("D", id, (), 0)))
        if self.takeovers:
            log = (*self.log, ("P", "", (), 0))
            owner = Owner(len(log), tuple(sorted(self.found())))
            yield "takeover", replace(self, takeovers=self.takeovers - 1, log=log, owners=(*self.owners, owner))
        for at, owner in enumerate(self.owners):
            for step, world, after in self._of(owner):
                owners = (*world.owners[:at], after, *world.owners[at + 1 :])
                yield f"{at} {step}", replace(world, owners=owners)

    def _of(self, owner: Owner) -> Iterator[tuple[str, Partition, Owner]]:
        missing = sorted(self.found() - set(owner.received))
        if missing and not self.rules.read:
            yield "receives", self, replace(owner, received=tuple(sorted((*owner.received, missing[0]))))
        if owner.made is None and not owner.trims and self.checkpoints:
            known = self.found() if self.rules.read else set(owner.received)
            places = {row[1]: at for at, row in enumerate(self.log, 1) if row[0] == "S"}
            kept = tuple(sorted((id, places[id]) for id in known & self.alive()))
            world = replace(self, checkpoints=self.checkpoints - 1)
            yield "looks", world, replace(owner, made=(kept, len(self.log)))
        elif owner.made is not None:
            kept, covers = owner.made
            if self.rules.fence and self.claim() > owner.claim:
                yield "is late", self, replace(owner, made=None)
                return
            stands_for = covers if self.rules.covers else len(self.log) + 1
            world = replace(self, log=(*self.log, ("K", "", kept, stands_for)))
            yield "checkpoints", world, replace(owner, made=None, trims=stands_for + 1)
        elif owner.trims:
            trimmed = replace(self, mark=max(self.mark, min(owner.trims, len(self.log) + 1)))
            yield "trims", trimmed, replace(owner, trims=0)


@pytest.mark.parametrize("fence", [True, False])
def test_whoever_takes_a_partition_over_finds_all_that_is_not_over(fence: bool) -> None:
    """Also if an older checkpoint becomes the newest: it stands for what it covers, and nothing above."""
    found = search(Partition(PartitionRules(fence=fence), starts=2, checkpoints=2, takeovers=1))
    assert (found.fault, found.path) == (None, [])
    assert found.states > 5_000


@pytest.mark.parametrize("rule", ["covers", "read"])
def test_without_a_rule_what_is_not_over_is_lost(rule: str) -> None:
    rules = replace(PartitionRules(), **{rule: False})
    found = search(Partition(rules, starts=2, checkpoints=2, takeovers=1))
    assert found.fault is not None and found.path
