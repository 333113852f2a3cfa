"""What the exit code of `boki` says, for every error of the tree: one mapping.

      0  ok
      1  a check failed     the command itself found it: `CheckFailed`
      2  usage              the call, the input, the output or the settings are wrong
      3  unreachable        the service, or what it needs, does not answer
      4  refused            it answered, and the answer is no
      5  outcome unknown    a write was sent and may or may not have been applied
     70  internal error     a fault of this program (`--debug` shows where), or a role that served ended by itself
    130  interrupted        Ctrl-C ended it early; what it did until then it says

A lost answer is an unknown outcome only to a command that writes; to one that reads, the service is unreachable.
"""

from __future__ import annotations

from typing import Final

from boki_common.errors import (
    BokiError,
    MetadataError,
    MetadataUnavailable,
    NetworkError,
    NoSequencer,
    NotEnoughBookies,
    OutcomeUnknown,
    UsageError,
)

OK: Final = 0
CHECK_FAILED: Final = 1
USAGE: Final = 2
UNREACHABLE: Final = 3
REFUSED: Final = 4
OUTCOME_UNKNOWN: Final = 5
INTERNAL: Final = 70
INTERRUPTED: Final = 130


class CheckFailed(BokiError):
    """A check that the command made found a difference; the report says which."""


class RoleFailed(BokiError):
    """A role that served ended by itself: its disk failed, or a fault of this program. A supervisor starts it again.

    Attributes:
        role: the kind of role. errors: class names of what it failed with.
    """


def exit_code(error: BokiError, *, writes: bool) -> int:
    """The exit code for an error that ends a command. `writes`: whether the command changes anything at the service."""
    if isinstance(error, CheckFailed):
        return CHECK_FAILED
    if isinstance(error, RoleFailed):
        return INTERNAL
    if isinstance(error, UsageError):
        return USAGE
    if isinstance(error, OutcomeUnknown):
        return OUTCOME_UNKNOWN
    if isinstance(error, (NetworkError, MetadataError, NoSequencer)) and not error.definite:
        return OUTCOME_UNKNOWN if writes else UNREACHABLE
    if isinstance(error, (NetworkError, MetadataUnavailable, NoSequencer, NotEnoughBookies)):
        return UNREACHABLE
    if writes and not error.definite:
        return OUTCOME_UNKNOWN
    return REFUSED
