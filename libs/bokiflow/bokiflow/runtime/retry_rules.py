"""Retries of failed steps. Pure.

Attempts are not recorded, only the last outcome of a step is. So a worker that takes the workflow over counts from the first attempt.
"""

from __future__ import annotations

import msgspec

from boki_common.errors import InvalidArgument


class Retry(msgspec.Struct, frozen=True):
    """The number of attempts of a step, and the delays between them.

    Attributes:
        attempts: the most attempts, the first included.
        delay_s: seconds before the second attempt.
        backoff: the factor by which each further delay grows.
        most_s: the longest delay in seconds.
        on: classes of errors that are retried; all others fail the step at once.
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
    """Return the seconds until the next attempt; None if there is none. `attempt`: the one that failed, counted from 1."""
    if attempt >= retry.attempts or not isinstance(error, retry.on):
        return None
    return min(retry.most_s, retry.delay_s * retry.backoff ** min(attempt - 1, 1_000))
