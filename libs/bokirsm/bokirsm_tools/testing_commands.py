"""The commands `boki rsm test`, `replay` and `shrink`: tests of machines without a server and without pytest.

Importing this module imports no library (see `commands`); the commands import the user's test.
"""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from boki_cli import exit_codes
from boki_cli.exit_codes import CheckFailed
from boki_cli.number_types import Whole
from boki_cli.options import CommandGroup, Invocation, command, flush, show_facts, write_line
from boki_common.errors import UsageError

if TYPE_CHECKING:
    from bokirsm.testing import Limits, Report, RsmTest, Witness
    from bokirsm.testing.witness import Replayed

_FILE = click.Path(path_type=Path, dir_okay=False)
_TEST = click.argument("test", metavar="MODULE:FUNCTION")
_WITNESS = click.argument("file", metavar="FILE", type=_FILE)
_OTHER = click.option("--test", "test", metavar="MODULE:FUNCTION", help="The test.  [default: the one that FILE names]")
_STRATEGIES = ("random", "probabilistic", "pct", "delay", "dfs")


def register(group: CommandGroup) -> None:
    """Add the commands to the group `rsm`."""
    command(group, "test", writes=False, short_help="Test machines by many schedules, without a server.")(_test)
    command(group, "replay", writes=False, short_help="Repeat the run of a witness.")(_replay)
    command(group, "shrink", writes=False, short_help="Make the run of a witness smaller.")(_shrink)


@_TEST
@click.option("--iterations", type=Whole(1), metavar="N", help="Runs, at most.  [default: those of the test]")
@click.option("--seconds", type=Whole(1), metavar="S", help="No run begins later.  [default: as of the test]")
@click.option("--seed", type=Whole(0), metavar="N", help="Seed of the first run.  [default: that of the test]")
@click.option("--strategy", type=click.Choice(_STRATEGIES), help="One strategy.  [default: as of the test]")
@click.option("--out", type=_FILE, metavar="FILE", help="Write the witness of a fault to FILE.")
def _test(
    invocation: Invocation,
    test: str,
    iterations: int | None,
    seconds: int | None,
    seed: int | None,
    strategy: str | None,
    out: Path | None,
) -> int:
    """Run a test until a run finds a fault, and print its story: each step, made small.

    MODULE:FUNCTION is a function under `rsm_test`, or one that returns a `Program`, as Python finds it from here.
    With --json an object with runs, steps, steps_per_second, complete,
    missed (handlers that no run reached: class, state and event) and witness, which is null if no fault was found.

    Exit code 1: a fault was found.

    \b
        boki rsm test test_bank:test_transfers --seconds 60 --out fault.json
        boki rsm test test_bank:test_transfers --strategy dfs --json
    """
    from bokirsm.testing.strategies import strategies_of

    one = _named(test)
    limits = _within(one.limits, iterations, seconds)
    report = one.report(limits, one.seed if seed is None else seed, strategies_of(strategy) if strategy else None)
    if report.witness is not None and out is not None:
        _write(out, report.witness.json())
    _show(invocation, one, report, out)
    if report.witness is not None:
        raise CheckFailed(f"a fault was found: {report.witness.fault.splitlines()[0]}")
    return exit_codes.OK


def _within(limits: Limits, iterations: int | None, seconds: int | None) -> Limits:
    """Return the limits of a test with those that the command names. One that names seconds alone has no limit of runs."""
    if iterations is None and seconds is None:
        return limits
    return limits._replace(iterations=iterations or sys.maxsize, seconds=limits.seconds if seconds is None else seconds)


def _show(invocation: Invocation, one: RsmTest, report: Report, out: Path | None) -> None:
    from bokirsm.testing.witness import replay, text_of

    if invocation.json:
        facts: dict[str, Any] = {
            "runs": report.runs,
            "steps": report.steps,
            "steps_per_second": report.steps_per_second,
            "longest": report.longest,
            "complete": report.complete,
            "missed": [place._asdict() for place in report.missed],
            "witness": report.witness,
        }
        invocation.emit(facts)
    else:
        if report.witness is not None:
            write_line(text_of(report.witness, replay(one.program, report.witness).story).encode())
        ends = ", which are all that there are" if report.complete else ""
        write_line(f"{report.runs:,} runs{ends}; {report.steps:,} steps, {report.steps_per_second:,} a second".encode())
        for place in report.missed:
            write_line(f"not reached: {place.kind} in {place.state} takes {place.event}".encode())
    flush()


@_WITNESS
@_OTHER
def _replay(invocation: Invocation, file: Path, test: str | None) -> int:
    """Repeat the run of a witness, bit for bit, and print its story.

    With --json the witness, with story and again: whether its fault is still there.

    Exit code 1: the fault is still there. Exit code 2: the program has changed, so that the run cannot be repeated.

    \b
        boki rsm replay fault.json
    """
    witness = _read(file)
    _told(invocation, witness, _replayed(_named(test or witness.test), witness))
    return exit_codes.OK


def _replayed(one: RsmTest, witness: Witness) -> Replayed:
    from bokirsm.testing.witness import replay

    return replay(one.program, witness)


def _told(invocation: Invocation, witness: Witness, found: Replayed) -> None:
    import msgspec

    from bokirsm.testing.witness import text_of

    facts = msgspec.to_builtins(witness) | {"story": found.story.lines, "again": found.fault is not None}
    show_facts(invocation, facts, text_of(witness, found.story))
    if found.fault is not None:
        raise CheckFailed(f"the fault is there: {found.fault.text.splitlines()[0]}")


@_WITNESS
@_OTHER
@click.option("--seconds", type=Whole(1), default=60, metavar="S", help="At most S seconds.", show_default=True)
@click.option("--out", type=_FILE, metavar="FILE", help="Write the result to FILE.  [default: over the first FILE]")
def _shrink(invocation: Invocation, file: Path, test: str | None, seconds: int, out: Path | None) -> int:
    """Look for a smaller run with the fault of a witness, and write its witness. Tests do so for five seconds.

    With --json the witness.

    \b
        boki rsm shrink fault.json --seconds 300
    """
    from bokirsm.testing.tester import shrunk_within

    witness = _read(file)
    one = _named(test or witness.test)
    found = shrunk_within(one.program, witness, seconds)
    _write(out or file, found.json())
    import msgspec

    show_facts(invocation, msgspec.to_builtins(found), f"{found.steps} steps, {witness.steps} before")
    return exit_codes.OK


def _named(test: str) -> RsmTest:
    from bokirsm.testing.decorator import rsm_test_of

    if "" not in sys.path:
        sys.path.insert(0, "")  # modules of the current folder, as `python -m` finds them
    module, _, name = test.partition(":")
    if not module or not name:
        raise UsageError(f"expected MODULE:FUNCTION, a test under @rsm_test, found {test!r:.200}")
    try:
        found = getattr(import_module(module), name, None)
    except ImportError as fault:
        raise UsageError(f"expected a module {module!r} that can be imported from here, found: {fault}") from fault
    if found is None:
        raise UsageError(f"expected a test {name!r} in {module!r}, found none")
    return rsm_test_of(found, test)


def _read(path: Path) -> Witness:
    from bokirsm.testing import parse_witness

    try:
        data = path.read_bytes()
    except OSError as fault:
        raise UsageError(f"{path} cannot be read: {fault.strerror}") from fault
    return parse_witness(data)


def _write(path: Path, data: bytes) -> None:
    try:
        path.write_bytes(data)
    except OSError as fault:
        raise UsageError(f"{path} cannot be written: {fault.strerror}") from fault
