"""`boki soak`: load that verifies itself, for as long as one likes, beside whatever one does to the cluster."""

from __future__ import annotations

import random
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from boki_cli import exit_codes
from boki_cli.number_types import Real, Whole
from boki_cli.options import Invocation, command
from boki_cli.stopwatch import seconds_now
from boki_cli.wording import counted
from boki_common.runtime import process

if TYPE_CHECKING:
    from boki_cli.trials.soak import Round

ROUND_S: Final = 30.0


@command(None, "soak", writes=True, client=True, short_help="Load a cluster and check every answer.")
@click.option("--minutes", type=Real(min=0.01), default=1.0, show_default=True, help="How long.")
@click.option("--clients", type=Whole(1, 100), default=8, show_default=True, help="Sessions at the same time.")
@click.option("--seed", type=int, help="Of what the clients do; by default another one each time, and printed.")
@click.option(
    "--keep",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIR",
    default=Path("."),
    help="Where the history of a round goes in which something is wrong, with a page that shows it.",
)
def soak(invocation: Invocation, minutes: float, clients: int, seed: int | None, keep: Path) -> int:
    """Load a cluster and check every answer.

    Clients append, append under conditions and read, each record with a checksum; each round of half a minute, on a
    book of its own named soak/SEED/N, is recorded and checked as `boki history check` does it. Kill processes, stop
    them, fill disks meanwhile: calls may fail, but nothing may be lost, doubled, reordered or invented. Exit code 1
    when something is.
    """
    chosen = random.SystemRandom().getrandbits(32) if seed is None else seed
    return process.run_command(lambda: _soak(invocation, minutes * 60, clients, chosen, keep))


async def _soak(invocation: Invocation, seconds: float, clients: int, seed: int, keep: Path) -> int:
    from boki_cli.trials.soak import Soak, failed

    soak = Soak(invocation.engines, clients=clients, timeout_s=invocation.timeout_s, rng=random.Random(seed))
    end = seconds_now() + seconds
    number = calls = bad = 0
    invocation.say(f"seed {seed}")
    while seconds_now() < end:
        number += 1
        book = f"soak/{seed}/{number}"
        done = await soak.round(book, min(ROUND_S, end - seconds_now()))
        calls += len(done.operations)
        bad += failed(done)
        _report(invocation, book, done)
        if failed(done):
            _keep(keep, number, done)
    if bad:
        raise exit_codes.CheckFailed(f"{bad} of {counted(number, 'round')} went wrong; their histories are in {keep}")
    invocation.say(f"{counted(number, 'round')}, {counted(calls, 'call')}, nothing wrong")
    return exit_codes.OK


def _report(invocation: Invocation, book: str, done: Round) -> None:
    facts: dict[str, Any] = {
        "book": book,
        "calls": len(done.operations),
        "unknown": done.unknown,
        "seconds": round(done.seconds, 3),
        "findings": [f"{finding.anomaly}: {finding.text}" for finding in done.findings],
        "corrupt": done.corrupt,
    }
    if invocation.json:
        invocation.emit(facts)
        return
    wrong = len(done.findings) + len(done.corrupt)
    click.echo(
        f"{book}: {len(done.operations):,} calls in {done.seconds:.1f} s, {done.unknown} of unknown outcome, "
        + (f"{wrong} WRONG" if wrong else "nothing wrong")
    )
    for line in (*facts["findings"], *done.corrupt):
        click.echo(f"    {line}")


def _keep(folder: Path, number: int, done: Round) -> None:
    from boki_sim.checkers.history import write_lines
    from boki_sim.checkers.report import as_page

    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"round-{number}.jsonl").write_bytes(b"".join(write_lines(done.operations)))
    page = as_page(done.operations, done.findings, title=f"Soak, round {number}")
    (folder / f"round-{number}.html").write_text(page, encoding="utf-8")
