"""The back-off of workflows that take their workers down. Pure.

A step that ends its process (`os._exit`, a segmentation fault, memory that runs out), or blocks the event loop until other workers take
the partition over, does the same to the next worker. Begun at once with all others, it would keep every workflow beside it from ending.

- Each claim counts how often in a row the workflow was begun in vain before it: its worker was lost, and since its claim no step of it
  had ended (StepInterrupted is no end) and no transaction. The count is a function of the log: each later worker comes to the same one,
  until it begins the workflow.
- A workflow whose worker was lost once is begun again at once. After the second time in a row it is *held back*: not claimed until a
  pause has passed, which doubles with each further time.
- A claim names the pause that applies if it turns out to be in vain. The pause counts from the claim, by the clock of the log. So neither a
  takeover nor a deploy lengthens it, a worker that lived for longer than it delays nothing, and commands can show when it ends.
- The pause is random, by the workflow's id and its claim. So workflows that were lost together begin apart: what ends between two deaths
  is done, and what is begun while nothing kills its worker ends a step, or records that it waits, which sets its count back.
- A worker that was drained, or closed by a process that goes on, was not lost: then the count stays as it is.
"""

from __future__ import annotations

from typing import Final

import xxhash

AT_ONCE: Final = 1
"""Times in a row begun in vain, up to which a workflow is begun again at once."""
MOST_S: Final = 600.0
"""Bound of the part of a pause that doubles. The longest pause is a half more, and a lease."""
MOST_VAIN: Final = 1_000_000
"""The count stands still there."""


def begun_in_vain(vain: int, *, lost: bool, progressed: bool) -> int:
    """Return how often in a row a workflow has been begun in vain, of the count that its newest claim has.

    Args:
        lost: its worker was lost while the workflow was its own. progressed: a step or transaction of it ended since that claim.
    """
    if not lost:
        return vain
    return 0 if progressed else min(vain + 1, MOST_VAIN)


def pause_ms(id: str, claim: int, vain: int, lease_s: float) -> int:
    """Return the pause that a claim with a count names, in milliseconds; 0 if the workflow may be begun again at once.

    It begins with a lease, in which other workers learn that this one is lost, and adds a half to one and a half times the lease,
    doubled with each time in a row after the second.

    Args:
        claim: seqnum of the claim before, which tells two pauses of one workflow apart.
    """
    if vain < AT_ONCE:
        return 0
    share = xxhash.xxh3_64_intdigest(f"{claim}/{id}".encode()) / 2**64
    doubled_s = min(lease_s * 2.0 ** min(vain - AT_ONCE, 64), MOST_S)
    return round(1_000 * (lease_s + (0.5 + share) * doubled_s))


def left_ms(vain: int, pause: int, claimed_ms: int, now_ms: int) -> int:
    """Return for how long a workflow is held back yet, in milliseconds; 0 if it may be begun now.

    Args:
        vain: how often in a row it was begun in vain. pause: of its newest claim, which was made at `claimed_ms`.
    """
    if vain <= AT_ONCE:
        return 0
    return max(0, min(pause, claimed_ms + pause - now_ms))
