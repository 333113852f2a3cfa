"""Good workflows end, and bad ones are explained, while workers are killed and redeployed with old and new code."""

from __future__ import annotations

from pathlib import Path

import pytest

from itests.wrong_code.app import BAD
from itests.wrong_code.trial import kinds, trial


def test_a_hundredth_is_of_each_kind() -> None:
    made = kinds(1_000)
    assert {kind: made.count(kind) for kind in BAD} == dict.fromkeys(BAD, 10)
    assert made.count("new_only") == 10 and made.count("good") == 1_000 - 10 * (len(BAD) + 1)


@pytest.mark.processes
@pytest.mark.timeout(300)
async def test_good_workflows_end_and_bad_ones_are_explained(tmp_path: Path) -> None:
    found = await trial(tmp_path, count=200, seconds=12, settle_s=120)
    assert found.faults == [] and found.kills >= 3, found


@pytest.mark.nightly
@pytest.mark.alone
@pytest.mark.processes
@pytest.mark.timeout(3_000)
async def test_ten_thousand_of_them(tmp_path: Path) -> None:
    found = await trial(tmp_path, count=10_000, seconds=60, settle_s=1_800, block_s=20.0)
    assert found.faults == [], found
