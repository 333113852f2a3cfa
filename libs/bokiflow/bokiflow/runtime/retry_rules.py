"""When a step that failed is tried again. Pure.

Retries are inside the step: only its last outcome is in the log. So a process that takes over begins to count anew.
"""

from __future__ import annotations

import msgspec

from boki_common.errors import InvalidArgument


class Retry(msgspec.Struct, frozen=True):
    """How often a step is tried, and how long it waits between two attempts.

    Attributes:
        attempts: at most, the first included.
        delay_s: before the second attempt. backoff: each further delay is so many times as long. most_s: no delay is longer.
        on: errors that are worth another attempt.
    """

    attempts: int = 3
    delay_s: float = 1.0
    backoff: float = 2.0
    most_s: float = 100.0
    on: tuple[type[Exception], ...] = (Exception,)

    def __post_init__(self) -> None:
        if self.attempts < 1 or self.delay_s < 0 or self.backoff < 1 or self.most_s < 0 or not self.on:
            raise InvalidArgument(
                "expected at least one attempt, delays of at least 0 s, a backoff of at least 1 and some class of errors, "
                f"found {self}"
            )


ONCE = Retry(attempts=1)


def next_delay_s(retry: Retry, attempt: int, error: BaseException) -> float | None:
    """Seconds until the next attempt, None: there is none.

    Args:
        attempt: that failed, counted from 1.
    """
    if attempt >= retry.attempts or not isinstance(error, retry.on):
        return None
    return min(retry.most_s, retry.delay_s * retry.backoff ** min(attempt - 1, 1_000))
