"""Result codes: which of them prove something. Their numbers are checked on recorded frames, in `test_v2`."""

from __future__ import annotations

from boki_common.bookkeeper.status import V2Status


def test_only_two_results_prove_absence() -> None:
    assert [status.name for status in V2Status if status.never_had] == ["NO_LEDGER", "NO_ENTRY"]
