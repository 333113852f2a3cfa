"""`boki sim run | replay | shrink`: whole clusters in one process, under a seed (`boki_sim`).

Seeds are run in processes of their own (`--jobs`), because one simulation uses one core. The exit code is 1 when a seed
failed; the report says which, what was broken, and the command that runs it again.
"""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Callable, Iterator
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click
from rich.table import Table

from boki_cli import exit_codes
from boki_cli.number_types import Real, Whole
from boki_cli.options import CommandGroup, Invocation, command
from boki_cli.wording import counted
from boki_common.errors import InvalidArgument

if TYPE_CHECKING:
    from boki_sim.campaign import Summary
    from boki_sim.faults.faults import Fault
    from boki_sim.outcome import Outcome

PROFILES: Final = ("calm", "network", "disk", "metadata", "harsh")
"""What `all` goes through."""
MORE_PROFILES: Final = ("full-disks",)
PROGRESS_S: Final = 10.0
TRACE_LINES: Final = 40
SEEDS: Final = 100
SEEDS_A_PROCESS: Final = 50
"""A worker is replaced after so many: what a run leaves in memory goes with it."""


class ProfileName(click.ParamType):  # type: ignore[type-arg]  # generic in the stubs of later versions only
    """One of the profiles, or a subject that is installed, which is looked for only when it is named."""

    name = "profile"

    def __init__(self, *more: str) -> None:
        self._known = (*PROFILES, *MORE_PROFILES, *more)

    def get_metavar(self, param: click.Parameter, ctx: click.Context) -> str:
        return f"[{'|'.join(self._known)}|SUBJECT]"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Fails with the names that there are."""
        if value in self._known:
            return value
        from boki_sim import subjects

        installed = subjects.names()
        if value not in installed:
            self.fail(f"expected one of {', '.join([*self._known, *installed])}, found {value!r}", param, ctx)
        return value


def _profile(*more: str, help: str) -> Callable[[Callable[..., int]], Callable[..., int]]:
    return click.option("--profile", type=ProfileName(*more), default="harsh", show_default=True, help=help)


_PROFILE = _profile(help="Which kinds of faults, or whose programs.")
_SECONDS = click.option(
    "--seconds",
    type=Real(0.1, 3_600),
    metavar="S",
    help="Virtual seconds of work and faults in a run; default 12, or as the subject has it.",
)
_SCRIPT = click.option(
    "--script",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    metavar="FILE",
    help="Faults to inject instead of those that the seed draws: one JSON object a line.",
)


sim: Final = CommandGroup("sim", help="Run whole clusters in one process, under a seed, with faults.")


@command(sim, "run", writes=False, short_help="Run many seeds; exit code 1 if one fails.")
@click.option("--seeds", type=Whole(1), metavar="N", help=f"How many; default {SEEDS}, or all in --minutes.")
@click.option("--first-seed", type=Whole(0), default=1, show_default=True, metavar="S")
@_profile("all", help="Which kinds of faults, or whose programs; all: the profiles in turn.")
@click.option("--minutes", type=Real(0.01), metavar="M", help="Begin no new seed after this long.")
@click.option("--jobs", type=Whole(1, 256), default=1, show_default=True, metavar="J", help="Processes.")
@click.option("--stop", is_flag=True, help="Stop at the first seed that fails.")
@_SECONDS
def run(
    invocation: Invocation,
    seeds: int | None,
    first_seed: int,
    profile: str,
    minutes: float | None,
    jobs: int,
    stop: bool,
    seconds: float | None,
) -> int:
    """Run clusters under many seeds, each with its own mix of faults, and report what broke.

    A seed means the same run everywhere. Each cluster is the real one (bookies, sequencers, engines, SDK) on
    virtual time, network, disks and metadata store.
    """
    from boki_sim import campaign

    if seeds is None and minutes is None:
        seeds = SEEDS
    profiles = PROFILES if profile == "all" else (profile,)
    begun = time.monotonic()
    ends = None if minutes is None else begun + 60 * minutes
    summary = campaign.Summary()
    shown = begun
    for outcome in _outcomes(campaign.jobs(first_seed, seeds, profiles), jobs, seconds, ends):
        summary.add(outcome)
        now = time.monotonic()
        if not outcome.ok:
            invocation.say(f"seed {outcome.seed} ({outcome.profile}) failed: {outcome.violations[0][:300]}")
        if now - shown > PROGRESS_S:
            shown = now
            rate = summary.seeds / (now - begun)
            invocation.say(
                f"{counted(summary.seeds, 'seed')}, {summary.failed} failed, {rate:.2f} seeds/s, now {outcome.seed}"
            )
        if stop and not outcome.ok:
            break
    wall_s = time.monotonic() - begun
    if invocation.json:
        invocation.emit(summary.as_json(wall_s))
    else:
        _show(invocation, summary, wall_s)
    return exit_codes.CHECK_FAILED if summary.failed else exit_codes.OK


@command(sim, "replay", writes=False, short_help="Run one seed again and show what happened.")
@click.argument("seed", type=Whole(0))
@_PROFILE
@_SCRIPT
@_SECONDS
@click.option("--trace", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE", help="Write all lines there.")
def replay(
    invocation: Invocation, seed: int, profile: str, script: Path | None, seconds: float | None, trace: Path | None
) -> int:
    """Run one seed again: its faults, its trace around the first violation, its digest.

    Equal digests are equal runs, event by event.
    """
    outcome = _run_one((seed, profile, seconds, _read(script), trace is not None))
    if trace is not None:
        trace.write_text("\n".join(outcome.trace) + "\n", encoding="utf-8")
    if invocation.json:
        invocation.emit(_as_json(outcome))
    else:
        for fault in outcome.script:
            click.echo(str(fault))
        _show_failure(outcome)
        click.echo(
            f"seed {seed} ({profile}) {'holds' if outcome.ok else 'fails'}: digest {outcome.digest}, "
            f"{outcome.operations} operations, {outcome.messages} messages, {outcome.virtual_s:.1f} virtual seconds"
        )
    return exit_codes.OK if outcome.ok else exit_codes.CHECK_FAILED


@command(sim, "shrink", writes=False, short_help="Find the smallest fault script that still fails.")
@click.argument("seed", type=Whole(0))
@_PROFILE
@_SCRIPT
@_SECONDS
@click.option("--tries", type=Whole(1), default=200, show_default=True, metavar="N")
@click.option(
    "--output", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE", help="Write the script there."
)
def shrink(
    invocation: Invocation,
    seed: int,
    profile: str,
    script: Path | None,
    seconds: float | None,
    tries: int,
    output: Path | None,
) -> int:
    """Find the smallest part of a failing seed's faults that still breaks the same rule."""
    from boki_sim import shrink as shrinking
    from boki_sim import subjects
    from boki_sim.campaign import rules_of
    from boki_sim.faults import faults

    first = _run_one((seed, profile, seconds, _read(script), False))
    if first.ok:
        raise InvalidArgument(
            f"seed {seed} ({profile}) holds: there is nothing to shrink; find one with `boki sim run`"
        )
    wanted = rules_of(first.violations)

    def fails(part: list[Fault]) -> bool:
        again = _run_one((seed, profile, seconds, part, False))
        invocation.say(f"{len(part)} faults: {'fails' if rules_of(again.violations) & wanted else 'holds'}")
        return bool(rules_of(again.violations) & wanted)

    if profile in (*PROFILES, *MORE_PROFILES):
        smallest = shrinking.shrink(first.script, fails, tries=tries)
    else:
        smallest = subjects.shrink_subject(profile, seed, script=_read(script), work_s=seconds or 0.0, tries=tries)
    last = _run_one((seed, profile, seconds, smallest, False))
    if output is not None:
        output.write_text(faults.to_text(smallest), encoding="utf-8")
    if invocation.json:
        invocation.emit({**_as_json(last), "faults_before": len(first.script)})
    else:
        invocation.say(f"{len(first.script)} faults before, {len(smallest)} now:")
        click.echo(faults.to_text(smallest), nl=False)
        _show_failure(last)
    return exit_codes.CHECK_FAILED


# -- running

_Job = tuple[int, str, "float | None", "list[Fault] | None", bool]


def _run_one(job: _Job) -> Outcome:
    """In a process of its own or in this one."""
    from boki_sim import subjects
    from boki_sim.outcome import WORK_S
    from boki_sim.run import run_seed

    seed, profile, seconds, script, keep_trace = job
    if profile in (*PROFILES, *MORE_PROFILES):
        return run_seed(seed, profile, script=script, work_s=seconds or WORK_S, keep_trace=keep_trace)
    return subjects.run_subject(profile, seed, script=script, work_s=seconds or 0.0, keep_trace=keep_trace)


def _outcomes(
    pairs: Iterator[tuple[int, str]], jobs: int, seconds: float | None, ends: float | None
) -> Iterator[Outcome]:
    """Outcomes as they come; no seed begins after `ends`."""
    jobs_of_seeds = ((seed, profile, seconds, None, False) for seed, profile in pairs)
    todo = takewhile(lambda _: ends is None or time.monotonic() < ends, jobs_of_seeds)
    if jobs == 1:
        yield from map(_run_one, todo)
        return
    with multiprocessing.get_context("spawn").Pool(jobs, maxtasksperchild=SEEDS_A_PROCESS) as pool:
        running = []
        for job in todo:
            running.append(pool.apply_async(_run_one, (job,)))
            if len(running) >= 2 * jobs:
                yield running.pop(0).get()
        for one in running:
            yield one.get()


def _read(script: Path | None) -> list[Fault] | None:
    from boki_sim.faults import faults
    from boki_sim.world.errors import SimulationError

    if script is None:
        return None
    try:
        return faults.from_text(script.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, SimulationError) as error:
        raise InvalidArgument(f"{script} is no script of faults: {error}") from error


# -- showing


def _as_json(outcome: Outcome) -> dict[str, object]:
    named = ("seed", "profile", "ok", "violations", "script", "digest", "operations", "messages", "virtual_s", "replay")
    return {name: getattr(outcome, name) for name in named}


def _show_failure(outcome: Outcome) -> None:
    """What was broken, and the trace before it."""
    for violation in outcome.violations:
        click.echo(violation)
    if outcome.violations:
        found = [at for at, line in enumerate(outcome.trace) if " VIOLATION " in line]
        end = found[0] + 1 if found else len(outcome.trace)
        click.echo("trace before it:")
        for line in outcome.trace[max(0, end - TRACE_LINES) : end]:
            click.echo(f"  {line}")


def _show(invocation: Invocation, summary: Summary, wall_s: float) -> None:
    console = invocation.console()
    if summary.faults:
        met, cells = summary.coverage()
        console.print(_table("fault", "steps that its target took part in", summary.fault_table()))
        console.print(_table("step", "faults that met it", summary.step_table()))
        click.echo(f"{met} of {cells} pairs of fault and step were met")
    for failure in summary.failures:
        click.echo(f"seed {failure.seed} ({failure.profile}): {failure.violations[0][:500]}")
        click.echo(f"    {failure.replay}")
    click.echo(
        f"{counted(summary.seeds, 'seed')}, {summary.failed} failed, {summary.operations:,} operations, "
        f"{summary.messages:,} messages, "
        f"{summary.virtual_s:.0f} virtual seconds in {wall_s:.0f} s: {summary.seeds / wall_s:.2f} seeds/s, "
        f"{summary.messages_per_s():,.0f} messages/s a core"
    )


def _table(row: str, cells: str, counts: dict[str, dict[str, int]]) -> Table:
    table = Table(row, "how often", cells, box=None, pad_edge=False)
    for name, found in counts.items():
        text = ", ".join(f"{one} {count}" for one, count in sorted(found.items(), key=lambda item: (-item[1], item[0])))
        table.add_row(name, str(sum(found.values())), text)
    return table
