"""Bookies for tests of commands keep what they hold over a restart, and commands find them by the address of the metadata."""

from __future__ import annotations

from typing import TYPE_CHECKING

from boki_cli.testing.bookies import BookieCluster

if TYPE_CHECKING:
    from boki_cli.testing.commands import RunCommandLine


def test_commands_read_what_the_cluster_holds(run_boki: RunCommandLine, bookies: BookieCluster) -> None:
    async def write() -> int:
        await bookies.ready()
        writer = await bookies.client.create()
        await writer.append(b"entry")
        await writer.close()
        for number in range(len(bookies.bookies)):
            await bookies.stop_bookie(number)
            await bookies.start_bookie(number)
        return writer.ledger_id

    ledger_id = bookies.run(write())
    done = run_boki("ledger", "read", str(ledger_id), "--metadata", bookies.uri)
    assert done.code == 0 and done.out.split()[:2] == ["0", "5"]
