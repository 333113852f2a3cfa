"""Bounds of what one writer of a session keeps, sends at once, and is kept for. Pure."""

from __future__ import annotations

from math import inf
from typing import Final

from boki_common import limits

WINDOW_BYTES: Final = 16 * limits.MIB
"""Data of undecided records that one book keeps; one more record is taken while they are below it."""
FRAME_TARGET_BYTES: Final = 2 * limits.BATCH_FLUSH_BYTES
"""A frame of appends is closed at this size. Above the size at which the engine closes an entry, so that a call of
`append_many` of about that size stays in one piece."""
RUN_BYTES: Final = 64
"""Counted for the start of a run in a frame."""
VOID_BYTES: Final = 16
"""Counted for a void in a frame."""
FILLED_NUMBERS: Final = limits.BATCH_RECORDS
"""Holes that are filled before the writer is given up, in as many frames as it takes."""
WRITER_IDLE_S: Final = 1_800.0
"""A session writer that was idle for so long is not used again (DESIGN §6.9)."""
NEVER_USED: Final = -inf
"""When a writer made progress that does not exist yet."""
