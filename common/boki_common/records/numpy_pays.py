"""From how many items on calling numpy pays: up to so many are looked at one by one, in every place that has both ways.

Measured with CPython 3.11 and numpy 2: a call costs about a microsecond, however few the items are.
"""

from __future__ import annotations

from typing import Final

FEW_ITEMS: Final = 128
"""Plain numbers of a column, to be added or compared."""
FEW_RUNS: Final = 48
"""Runs of a batch, to be checked or decided."""
FEW_ROWS: Final = 32
"""Rows of ANSWERS, to be made or read."""
FEW_SEQNUMS: Final = 64
"""Seqnums of a stream, to be moved or counted."""
