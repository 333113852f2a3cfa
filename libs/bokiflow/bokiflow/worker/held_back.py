"""The back-off of workflows that end their worker's process. Pure.

A step that ends its process (`os._exit`, a segmentation fault, memory that runs out), or blocks the event loop until other workers take
the partition over, does the same to the next worker. If it began at once with all other workflows, none of them would ever end.

- Each claim counts how many times in a row the workflow was *begun in vain*: its worker was lost, and no step (StepInterrupted does not
  count) and no transaction had ended since the claim of that worker. The count follows from the log, so all workers compute the same one.
- A workflow whose worker was lost once begins again at once. After the second time in a row it is *held back*: it is not claimed before
  a pause has passed, which doubles with each further time.
- A claim names the pause that applies if it turns out to be in vain. The pause counts from the claim, by the clock of the log. So neither a
  takeover nor a deploy lengthens it, a worker that lived for longer delays nothing, and commands can show its end.
- The pause is random, by the workflow's id and its claim. So workflows that were lost together begin apart. A workflow that begins while
  no other one ends its worker ends a step, or records that it waits, and its count returns to 0.
- A worker that was drained, or closed by a process that still runs, was not lost; the count does not change.
"""

from __future__ import annotations

from typing import Final

import xxhash

from bokilib.append import log_clock

AT_ONCE: Final = 1
"""Begins in vain, in a row, after which a workflow still begins again at once."""
MOST_S: Final = 600.0
"""Seconds to which the doubled part of a pause grows. The longest pause is one and a half times that, and a lease."""
MOST_VAIN: Final = 1_000_000
"""The highest count."""


def begun_in_vain(vain: int, *, lost: bool, progressed: bool) -> int:
    """Return the count of begins in vain after the newest claim.

    Args:
        vain: the count in the claim.
        lost: the worker of the claim was lost.
        progressed: a step or transaction of the workflow ended since the claim.
    """
    if not lost:
        return vain
    return 0 if progressed else min(vain + 1, MOST_VAIN)


def pause_ms(id: str, claim: int, vain: int, lease_s: float) -> int:
    """Return the pause that a claim with a count names, in milliseconds; 0 if the workflow may begin again at once.

    It is a lease, in which other workers detect the loss, and a random half to one and a half of another lease, which doubles with each
    begin in vain after the second. `claim`: the seqnum of the claim before, by which the pauses of one workflow differ.
    """
    if vain < AT_ONCE:
        return 0
    share = xxhash.xxh3_64_intdigest(f"{claim}/{id}".encode()) / 2**64
    doubled_s = min(lease_s * 2.0 ** min(vain - AT_ONCE, 64), MOST_S)
    return round(1_000 * (lease_s + (0.5 + share) * doubled_s))


def left_ms(vain: int, pause: int, claimed_ms: int, now_ms: int) -> int:
    """Return the rest of the pause that a claim at `claimed_ms` names, in milliseconds; 0 if the workflow may begin now."""
    if vain <= AT_ONCE:
        return 0
    return log_clock.left_ms(claimed_ms + pause, claimed_ms, now_ms)
