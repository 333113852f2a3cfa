"""Whether the clock that orders a log's time differs from this machine's too much (finding F37 of the design's review). Pure.

The time of records is the sequencer's: each cut carries max(the cut before, its clock). Nothing that decides safety reads it,
but seeks by time, retention by age and people do; and a clock that was in the future once *sticks*: time stands still until the
real one has caught up. Nobody knows which of two clocks is right, so people are warned that they differ.

    asked ── request ──► sequencer's clock read ── answer ──► received      the answer is of somewhere between the two

So a difference is known up to half of the time that the answer took, and counts only by what is certain of it: a slow answer,
or a process that was stopped meanwhile, raises no alarm.
"""

from __future__ import annotations

from typing import Any, NamedTuple


class ClockReading(NamedTuple):
    """A sequencer's answer when it was asked, between `asked_ms` and `received_ms` of this machine's wall clock. `sequencer_ms`:
    its wall clock. `cut_ms`: time of the newest cut."""

    asked_ms: int
    received_ms: int
    sequencer_ms: int
    cut_ms: int

    @property
    def ahead_ms(self) -> int:
        """The sequencer's clock minus this machine's; negative when it is behind."""
        return self.sequencer_ms - (self.asked_ms + self.received_ms) // 2

    @property
    def uncertain_ms(self) -> int:
        """The difference may be so much more, or less."""
        return -(-abs(self.received_ms - self.asked_ms) // 2)

    @property
    def log_ahead_ms(self) -> int:
        """By how much the newest cut is later than this machine's clock; 0 when it is not."""
        return max(self.cut_ms - max(self.asked_ms, self.received_ms), 0)

    def as_status(self, bound_ms: int) -> dict[str, Any]:
        """As plain values, for `boki status`."""
        return {
            "ahead_ms": self.ahead_ms,
            "uncertain_ms": self.uncertain_ms,
            "log_ahead_ms": self.log_ahead_ms,
            "warning": warning(self, bound_ms),
        }


def warning(reading: ClockReading, bound_ms: int, *, whose: str = "this engine's") -> str | None:
    """What a person should know and do; None when the clocks agree as far as is certain. `whose`: who read the other clock."""
    ahead_ms = reading.ahead_ms
    if abs(ahead_ms) - reading.uncertain_ms > bound_ms:
        which = "ahead of" if ahead_ms > 0 else "behind"
        return (
            f"the sequencer's clock is {abs(ahead_ms) / 1000:.1f} s {which} {whose}, expected at most {bound_ms / 1000:g} s: "
            "times of records are the sequencer's; set both clocks (NTP)"
        )
    if reading.log_ahead_ms > bound_ms:
        return (
            f"the log's time is {reading.log_ahead_ms / 1000:.1f} s ahead of {whose} clock, expected at most "
            f"{bound_ms / 1000:g} s: an earlier sequencer's clock was in the future, and time stands still until then"
        )
    return None
