"""The door to the simulator: found by entry point, and a clear word when there is none."""

from __future__ import annotations

import pytest

from boki.testing import _simulated
from boki_common.errors import UsageError


def test_what_is_not_installed_is_named() -> None:
    with pytest.raises(UsageError, match=r"boki\.simulator.*no-such-thing"):
        _simulated.simulator("no-such-thing")


@pytest.mark.blocking_allowed  # entry points are files
def test_both_doors_open() -> None:
    assert (
        _simulated.simulator("simulated").__module__ == _simulated.simulator("run").__module__ == "boki_sim.simulated"
    )
