"""Result codes of Apache BookKeeper's v2 protocol (v3 numbers them differently), and what they prove.

Every answer about an entry is three-valued (DESIGN §4 rule 1): *have*, *never had*, *unknown*. Only OK is the first,
only NO_LEDGER and NO_ENTRY are the second, everything else is the third.
"""

from __future__ import annotations

from enum import IntEnum


class V2Status(IntEnum):
    """The `rc` field of v2 responses. Source: recorded frames, and BookieProtocol of Apache BookKeeper 4.18."""

    OK = 0
    NO_LEDGER = 1
    NO_ENTRY = 2
    BAD_REQUEST = 100
    IO_ERROR = 101
    UNAUTHORIZED = 102
    BAD_VERSION = 103
    FENCED = 104
    READ_ONLY = 105
    TOO_MANY_REQUESTS = 106
    UNKNOWN_LEDGER_STATE = 107

    @property
    def never_had(self) -> bool:
        """Whether the bookie is sure that it never stored the entry."""
        return self in (V2Status.NO_LEDGER, V2Status.NO_ENTRY)
