"""The program of the README runs against `boki dev`, is short, and is completed once when it is killed."""

from __future__ import annotations

import asyncio
import re
import sys
from pathlib import Path

import pytest

import boki
from bokiflow.model.flow_events import PICKER, Claimed, Ended, Started
from bokilib.append.log import Log

README = Path(__file__).parents[2] / "bokiflow" / "README.md"


def program_of(url: str) -> tuple[str, str]:
    """What the README has, and what it prints."""
    found = re.search(r"<!-- prints (.+?) -->\n```python\n(.+?)```", README.read_text(), re.DOTALL)
    assert found is not None
    return found[2].replace("boki://127.0.0.1:7040", url), found[1]


@pytest.mark.processes
async def test_the_program_is_killed_in_the_middle_and_the_order_is_completed_once(
    dev_url: str, tmp_path: Path
) -> None:
    source, prints = program_of(dev_url)
    assert len([line for line in source.splitlines() if line]) <= 15
    file = tmp_path / "program.py"
    file.write_text(source)
    async with boki.connect(dev_url) as client:
        book = client.book("shop")
        killed = await asyncio.create_subprocess_exec(sys.executable, file, stdout=asyncio.subprocess.PIPE)
        assert await book.read_next("flow/own/order-7", wait=30) is not None
        killed.kill()
        out, _ = await killed.communicate()
        assert out == b"", "it was killed before its end"
        for _ in range(2):
            ran = await asyncio.create_subprocess_exec(
                sys.executable, file, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
            )
            out, errors = await ran.communicate()
            assert (out.decode().strip(), errors.decode()) == (prints, "")
        fence = [record async for record in book.read("flow/own/order-7", consistency="linearizable")]
        log = Log(book)
        kinds = []
        for record in fence:
            assert isinstance(record, boki.Record)
            events = PICKER.of(record.seqnum, await log.open(record), about="order-7")
            kinds += [type(event) for event in events if isinstance(event, Started | Claimed | Ended)]
        assert kinds == [Started, Claimed, Ended]


def test_its_links_lead_somewhere() -> None:
    for target in re.findall(r"\]\(([^)]+)\)", README.read_text()):
        assert (README.parent / target).exists(), target
