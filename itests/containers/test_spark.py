"""This machine's Spark reads a book of a cluster in containers while an engine is killed.

Spark asks engines where records are, and reads them of bookies, which the cluster's own network names. So it runs where those names
are known: in a mount namespace with a file of hosts of its own. Nothing of the machine changes.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

import boki
from boki.testing.containers import BokiCluster

pytestmark = [pytest.mark.containers, pytest.mark.alone, pytest.mark.blocking_allowed, pytest.mark.timeout(600)]

RECORDS = 5_000
PROGRAM = """
import json, sys
from pathlib import Path
from boki_spark.session import local_session
url, folder = sys.argv[1:]
spark = local_session(Path(folder), master="local[2,3]")
book = spark.read.format("boki").option("url", url).option("book", "spark")
print(json.dumps(sorted(int(bytes(row["data"])) for row in book.load().collect())), flush=True)
print(json.dumps(book.option("tags", "even").load().count()), flush=True)
spark.stop()
"""


def lacking() -> str:
    """Why this machine cannot run it; "" when it can."""
    if find_spec("pyspark") is None:
        return "the extra `spark` is not installed: make spark"
    if os.geteuid() != 0 or shutil.which("unshare") is None:
        return "it takes root, and unshare, to have a file of hosts of one's own"
    return ""


async def read_by_spark(cluster: BokiCluster, folder: Path) -> tuple[Any, Any]:
    """All records of the book, and how many have the tag."""
    (folder / "program.py").write_text(PROGRAM)
    names = "".join(f"{address} {name}\n" for name, address in cluster.addresses.items())
    (folder / "hosts").write_text(Path("/etc/hosts").read_text() + names)
    with (folder / "log").open("wb") as log:
        spark = await asyncio.create_subprocess_exec(
            *("unshare", "--mount", "sh", "-c", 'mount --bind "$1" /etc/hosts && shift && exec "$@"', "sh"),
            *(str(folder / "hosts"), sys.executable, str(folder / "program.py"), cluster.url, str(folder / "spark")),
            stdout=asyncio.subprocess.PIPE,
            stderr=log,
        )
        said, _ = await spark.communicate()
    assert spark.returncode == 0, (folder / "log").read_text()[-4_000:]
    whole, tagged = said.splitlines()
    return json.loads(whole), json.loads(tagged)


async def test_a_book_is_read_whole_while_an_engine_is_killed(cluster: BokiCluster, tmp_path: Path) -> None:
    reason = lacking()
    if reason:
        pytest.skip(reason)
    async with boki.connect(cluster.url, timeout=120.0) as client, asyncio.timeout(400):
        records = [(b"%d" % number, ["even"] if number % 2 == 0 else []) for number in range(RECORDS)]
        await client.book("spark").append_many(records)
        async with asyncio.TaskGroup() as group:
            reading = group.create_task(read_by_spark(cluster, tmp_path))
            await asyncio.to_thread(cluster.kill, "engine-2")
            await asyncio.to_thread(cluster.start_again, "engine-2")
        assert reading.result() == (list(range(RECORDS)), RECORDS // 2)
