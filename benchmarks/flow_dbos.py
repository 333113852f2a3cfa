"""DBOS on PostgreSQL, as `flow_peer` drives it: workflows of steps that do nothing, called as its documentation does.

python -m benchmarks.flow_dbos SOCKET_DIRECTORY PORT
"""

from __future__ import annotations

import asyncio
import importlib
import sys
from importlib import metadata
from typing import Any, Final

from benchmarks.flow_peer import serve

CONNECTIONS: Final = 32
"""One for each of its clients."""


def main() -> None:
    directory, port = sys.argv[1:]
    dbos: Any = importlib.import_module("dbos")
    url = f"postgresql://bench@/dbos?host={directory}&port={port}"
    dbos.DBOS(
        config={
            "name": "bench",
            "system_database_url": url,
            "sys_db_pool_size": CONNECTIONS,
            "log_level": "ERROR",
            "console_log_level": "ERROR",
        }
    )

    @dbos.DBOS.step()  # type: ignore[untyped-decorator]  # of a package that need not be there
    async def step(number: int) -> int:
        return number + 1

    @dbos.DBOS.workflow()  # type: ignore[untyped-decorator]  # of a package that need not be there
    async def steps(count: int) -> int:
        total = 0
        for _ in range(count):
            total = await step(total)
        return total

    dbos.DBOS.launch()
    try:
        asyncio.run(serve({"1 step": lambda: steps(1), "5 steps": lambda: steps(5)}, version=metadata.version("dbos")))
    finally:
        dbos.DBOS.destroy()


if __name__ == "__main__":
    main()
