"""Witnesses: the decisions that lead to a fault, as JSON, and the story of their run.

| member | |
|---|---|
| version | 1 |
| test | the test, as `module:function`; "" if it is not known |
| app | its name |
| strategy, seed | of the run that found the fault |
| fair_from | promises that are not kept are faults from this step on; null: never |
| kind, place, fault | of the fault: see `Fault` |
| digest | of all that the run decided and did; empty if it cannot be repeated, since it makes choices of its own |
| steps | of the run |
| decisions | each `["run", key]`, `["pick", number]` or `["crash", 0 or 1]` |
| found_steps | of the run that found it, before it was made smaller |
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

import msgspec

from boki_common.errors import InvalidArgument
from bokirsm.testing.errors import Diverged, Fault, FaultKind
from bokirsm.testing.run import Program, Run
from bokirsm.testing.story import Story
from bokirsm.testing.strategies import Decision, Kind, Scripted

VERSION: Final = 1


class Witness(msgspec.Struct, frozen=True):
    """The decisions that lead to a fault; see the module."""

    app: str
    strategy: str
    seed: int
    kind: FaultKind
    place: str
    fault: str
    digest: str
    steps: int
    decisions: list[tuple[Kind, str | int]]
    found_steps: int
    fair_from: int | None = None
    test: str = ""
    version: int = VERSION

    def json(self) -> bytes:
        """Return the witness as JSON."""
        return msgspec.json.format(msgspec.json.encode(self), indent=1) + b"\n"

    @property
    def script(self) -> list[Decision]:
        """The decisions."""
        return [Decision(*one) for one in self.decisions]


def parse_witness(data: bytes) -> Witness:
    """Return a witness.

    Raises:
        InvalidArgument: this is none, or one of a later version.
    """
    try:
        found = msgspec.json.decode(data, type=Witness)
    except msgspec.MsgspecError as fault:
        raise InvalidArgument(f"expected a witness of bokirsm.testing, found: {fault}") from fault
    if found.version != VERSION:
        raise InvalidArgument(
            f"expected a witness of version {VERSION}, found version {found.version}", found=found.version
        )
    return found


class Replayed(NamedTuple):
    """A run that was repeated.

    Attributes:
        fault: the one that it found, or None.
        decisions: those that it made.
        story: of the run.
        steps: of the run.
    """

    fault: Fault | None
    decisions: list[Decision]
    story: Story
    steps: int


def rerun(
    program: Program,
    decisions: Sequence[Decision],
    kind: str,
    *,
    strict: bool,
    fair_from: int | None,
    story: bool = True,
) -> Replayed:
    """Run a program by a script.

    Args:
        program: the subject.
        decisions: the script.
        kind: of the fault that is looked for: handlers are checked if it is one of checks.
        strict: the decisions have to fit.
        fair_from: the step from which promises that are not kept are reported.
        story: keep the story, which takes time.

    Raises:
        Diverged: they do not fit.
    """
    strategy = Scripted(decisions, strict=strict, checks=kind in ("leak", "uncontrolled"), fair_from=fair_from)
    strategy.begin(0)
    told = Story()
    run = Run(program, strategy, story=told if story else None)
    try:
        run.go()
    except Fault as fault:
        return Replayed(fault, run.decisions, told, run.steps)
    return Replayed(None, run.decisions, told, run.steps)


class FoundBy(NamedTuple):
    """The run that found a fault first.

    Attributes:
        strategy: the name of its strategy.
        seed: of the strategy.
        fair_from: promises that are not kept are faults from this step on; None: never.
        steps: of the run; 0: those of the run that is repeated.
    """

    strategy: str
    seed: int
    fair_from: int | None
    steps: int = 0


def witness_of(program: Program, decisions: Sequence[Decision], fault: Fault, by: FoundBy) -> Witness:
    """Return the witness of a fault. The run is repeated, and has to find it again, unless the fault is that it makes choices of its own.

    Raises:
        Diverged: it does not.
    """
    repeated = _repeated(program, decisions, fault, by.fair_from)
    steps = sum(one.kind == "run" for one in decisions)
    again = repeated if repeated is not None else Replayed(fault, list(decisions), Story(), steps)
    assert again.fault is not None
    return Witness(
        program.app.name,
        by.strategy,
        by.seed,
        again.fault.kind,
        again.fault.place,
        again.fault.text,
        "" if repeated is None else repeated.story.digest,
        again.steps,
        [(one.kind, one.value) for one in again.decisions],
        by.steps or again.steps,
        by.fair_from,
    )


def _repeated(program: Program, decisions: Sequence[Decision], fault: Fault, fair_from: int | None) -> Replayed | None:
    """Repeat the run of a fault, and return it; None if it does not find the fault again since it makes choices of its own.

    Raises:
        Diverged: it does not find the fault again, though the fault is not that it makes choices of its own.
    """
    found = "no fault"
    try:
        repeated = rerun(program, decisions, fault.kind, strict=True, fair_from=fair_from)
    except Diverged as diverged:
        found = str(diverged)
    else:
        if repeated.fault is not None:
            if repeated.fault.kind == fault.kind:
                return repeated
            found = repeated.fault.text
    if fault.kind == "uncontrolled":
        return None
    raise Diverged(f"expected the run to find its fault again, found {found}. The fault was: {fault.text}")


def replay(program: Program, witness: Witness) -> Replayed:
    """Repeat the run of a witness, bit for bit.

    A program that makes choices of its own may do otherwise each time. Then the fault of the witness is returned, without a story.

    Raises:
        Diverged: the program has changed: it took other decisions, or did otherwise.
    """
    try:
        if witness.digest:
            return _same_run(program, witness)
    except Diverged:
        if witness.kind != "uncontrolled":
            raise
    return Replayed(Fault(witness.kind, witness.place, witness.fault), witness.script, Story(), witness.steps)


def _same_run(program: Program, witness: Witness) -> Replayed:
    """Repeat the run of a witness. Raises Diverged: the program has changed."""
    found = rerun(program, witness.script, witness.kind, strict=True, fair_from=witness.fair_from)
    if found.story.digest != witness.digest:
        raise Diverged(
            f"expected the run of the witness, with digest {witness.digest}, found {found.story.digest}: the program has changed"
            + ("" if found.fault is None else f"; its fault is now: {found.fault.text}")
        )
    return found


def text_of(witness: Witness, story: Story) -> str:
    """Return a fault with its story."""
    smaller = f", made smaller from {witness.found_steps}" if witness.found_steps > witness.steps else ""
    found = f"found by {witness.strategy}, seed {witness.seed}; its {witness.steps} steps{smaller}:"
    return "\n".join([witness.fault, "", found, *story.lines])
