"""What is set of repair: whether it copies, and its times and bounds. It imports nothing, since the settings of a process have it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final

GRACE_S: Final = 600.0
"""How long a bookie is away before its copies are made anew elsewhere, by default."""


class Mode(Enum):
    """What an auditor does. The values are those of the setting."""

    OURS = "ours"
    OBSERVE = "observe"
    OFF = "off"


@dataclass(frozen=True, slots=True, kw_only=True)
class RepairLimits:
    """Times and bounds of repair; the settings of controllers say what each is."""

    grace_s: float = GRACE_S
    bytes_per_s: int = 32 * 1024 * 1024
    ledgers_at_once: int = 4
    round_s: float = 10.0
    scan_s: float = 3_600.0
