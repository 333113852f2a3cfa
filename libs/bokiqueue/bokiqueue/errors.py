"""What a queue raises beside the errors of the SDK and of `bokilib`.

BokiError
├── UsageError      WrongMode, QueueDiffers, NoSuchGroup
└── LogBookError    HandlerTimeout, HandlerExited, HandlerConflict, NoSuchQueue, StaleReceipt, QueueEmpty, ResultTrimmed
"""

from __future__ import annotations

from boki_common.errors import InvalidArgument, LogBookError


class WrongMode(InvalidArgument):
    """A queue is popped or consumed, never both: that was chosen when it was made.

    Attributes:
        expected: the mode that the call needs. found: the queue's.
    """


class QueueDiffers(InvalidArgument):
    """The queue exists, with other settings than those that were given. They are the same for its whole life.

    Attributes:
        expected: what was given. found: what it has.
    """


class NoSuchGroup(InvalidArgument):
    """No such group of consumers is registered: `await queue.register(group)`, once."""


class NoSuchQueue(LogBookError):
    """No queue of this name exists in the book; `Queue.open` makes one."""


class StaleReceipt(LogBookError):
    """The message is not this handler's any more: its lease ran out, it was decided already, or the shard has another owner.

    Nothing was appended, and nothing of this receipt ever will be.
    """


class QueueEmpty(LogBookError):
    """There was no message, within the time that was given."""


class ResultTrimmed(LogBookError):
    """The pop is in the log, and what it took has been trimmed: this process was away for longer than the queue's grace.

    Attributes:
        seqnum: of the pop.
    """


class HandlerTimeout(LogBookError):
    """A handler ran for longer than the lease of its message. It was cancelled, nothing of it is in the log, and the attempt failed.

    Attributes:
        handler: its name. ran_s: for how many seconds it ran. expected: how many it may.
    """


class HandlerExited(LogBookError):
    """A handler raised what ends programs or tasks (`SystemExit`, `CancelledError` that nobody asked for). The attempt failed.

    Attributes:
        handler: its name. `__cause__` is what it raised.
    """


class HandlerConflict(LogBookError):
    """A record that a handler appends beside its transaction lost again and again, though nobody else wrote what it expects. The attempt
    failed.

    Attributes:
        handler: its name. `__cause__` is the newest Conflict.
    """
