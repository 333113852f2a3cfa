"""Damaged conversations with real servers, for a moment each; `make fuzz` takes its time."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from boki_common.net.connection import Address
from itests.fuzz import live
from itests.fuzz.live import SERVERS, Finding, Fuzzed, Target, fuzz_live

pytestmark = [pytest.mark.processes, pytest.mark.blocking_allowed]  # it looks at logs and at /proc

SECONDS = 1.5


async def test_every_server_goes_on_serving_whatever_it_is_sent_before_and_after_a_hello(tmp_path: Path) -> None:
    counts = await fuzz_live(tmp_path, list(SERVERS), seconds=SECONDS, seed=1)
    assert [name for name, count in counts.items() if not count.frames] == []
    assert [name for name in ("engine", "sequencer", "controller") if not counts[name].before_hello] == []


async def test_a_server_that_logs_an_error_or_is_gone_is_a_finding_with_what_it_was_sent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live, "FINDINGS", tmp_path / "findings")
    log = tmp_path / "log"
    log.write_text("level=error before it began\n")
    target = Target("engine", Address("127.0.0.1", 1), 2**22 + 1, log, SERVERS["engine"])
    fuzzed = Fuzzed(target, Random(1))
    with pytest.raises(Finding, match="its process is gone"):
        await fuzzed._look()
    here = target._replace(pid=1)
    fuzzed = Fuzzed(here, Random(1))
    log.write_text(log.read_text() + 'level=error event="a request failed inside"\n')
    with pytest.raises(Finding, match="a request failed inside"):
        await fuzzed._look()
    assert (tmp_path / "findings" / "live-engine").exists()
