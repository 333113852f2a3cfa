"""The command line of the applications: options, the trial, and its report.

    sys.exit(main(HOTEL))                           # `python -m examples.hotel`, and likewise MOVIE

It prints each kill while the trial runs; then requests with their latencies, the kills, and the promises that hold, or the
faults. The exit code is 1 if there are faults, and 2 if `--tables` finds no Cassandra.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from rich.console import Console
from rich.table import Table

from boki_common.runtime.process import loop_factory
from examples import trial_command
from examples.apps.application import Application
from examples.apps.trial import CLIENTS, TrialResult, operation_rows, trial
from itests.support.cassandra import CassandraServer
from itests.support.java_server import ServerMissing


def report(console: Console, found: TrialResult) -> None:
    """Print requests with their latencies, kills, and the size of the data."""
    table = Table(box=None, pad_edge=False)
    for name in ("requests", "answered", "of these refused", "p50 ms", "p99 ms"):
        table.add_column(name, justify="left" if name == "requests" else "right")
    for row in operation_rows(found.answers):
        table.add_row(row.operation, f"{row.answers:,}", f"{row.refused:,}", f"{row.p50_ms:.1f}", f"{row.p99_ms:.1f}")
    console.print()
    console.print(table)
    killed = trial_command.killed_of(found.killed)
    console.print(
        f"\nkilled with kill -9: {killed}; {found.failed_attempts:,} attempts without an answer were repeated; "
        f"{len(found.rows):,} rows; {found.seconds:.0f} s"
    )


def main(application: Application) -> int:
    """Run a trial with the options of the command line, and return the exit code."""
    about = f"Run the application {application.name} on a cluster whose processes are killed, and check its promises."
    parser = trial_command.options(application.name, about, seconds=30.0)
    parser.add_argument("--services", type=int, default=2, help="number of service processes")
    parser.add_argument("--clients", type=int, default=CLIENTS, help="number of clients")
    parser.add_argument(
        "--tables",
        action="store_true",
        help="keep the rows in an Apache Cassandra, which the command starts and the trial kills too",
    )
    parser.add_argument(
        "--directory",
        type=Path,
        help="directory for data, logs and page.html, which is kept; by default a temporary one",
    )
    arguments = parser.parse_args()
    console = trial_command.console()
    with tempfile.TemporaryDirectory(prefix=f"boki-{application.name}-") as made, ExitStack() as stack:
        directory = arguments.directory or Path(made)
        try:
            tables = stack.enter_context(_cassandra(directory)) if arguments.tables else None
        except ServerMissing as missing:
            console.print(f"--tables: {missing}", style="bold red", markup=False)
            return 2
        runner = stack.enter_context(asyncio.Runner(loop_factory=loop_factory()))
        found = runner.run(
            trial(
                application,
                directory,
                seconds=arguments.seconds,
                seed=arguments.seed,
                services=arguments.services,
                clients=arguments.clients,
                tables=tables,
                say=lambda text: console.print(text, style="dim", markup=False),
            )
        )
    report(console, found)
    return trial_command.show(console, found.faults, ["every request ended with a definite result", *application.holds])


@contextmanager
def _cassandra(directory: Path) -> Iterator[CassandraServer]:
    server = CassandraServer.start(directory / "cassandra")
    try:
        yield server
    finally:
        server.kill()
