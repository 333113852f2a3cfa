"""Errors of queues, beside those of the SDK and of `bokilib`.

BokiError
├── UsageError      WrongMode, QueueDiffers, NoSuchGroup
└── LogBookError    HandlerTimeout, HandlerExited, HandlerConflict, NoSuchQueue, NotEntered (retryable), StaleReceipt, QueueEmpty,
                    ResultTrimmed (applied), UnfitMessage (applied)
"""

from __future__ import annotations

from boki_common.errors import InvalidArgument, LogBookError


class WrongMode(InvalidArgument):
    """The call needs a queue of the other mode: a queue is popped or consumed, as chosen when it was made.

    Attributes:
        expected: the mode that the call needs.
        found: the queue's mode.
    """


class QueueDiffers(InvalidArgument):
    """The queue exists with other settings than the given ones.

    Attributes:
        expected: the given setting.
        found: the queue's setting.
    """


class NoSuchGroup(InvalidArgument):
    """No such group of consumers is registered; `await queue.register(group)` registers it."""


class NotEntered(LogBookError):
    """The consumer delivers no messages: it was left or drained, or is not entered yet. Nothing was appended.

    A step of a workflow that takes its message from it is retried, until it is entered or another worker resumes the workflow.
    """

    retryable = True


class NoSuchQueue(LogBookError):
    """No queue of this name exists in the book; `Queue.open` makes one."""


class StaleReceipt(LogBookError):
    """The message belongs to this handler no longer: its lease ran out, it was decided already, or the shard has another owner.

    Nothing was appended, and nothing under this receipt will be.
    """


class QueueEmpty(LogBookError):
    """No message came within the given time."""


class ResultTrimmed(LogBookError):
    """The pop is in the log, but the message that it took has been trimmed: this process was away for longer than the queue's grace.

    Attributes:
        seqnum: the seqnum of the pop.
    """

    definite = False


class UnfitMessage(LogBookError):
    """A popped message does not fit the type that the queue was opened with. It was taken, and no later pop returns it.

    Attributes:
        body: the message's body, as JSON.
    """

    definite = False


class HandlerTimeout(LogBookError):
    """A handler ran for longer than the lease of its message: it was cancelled, its transaction did not happen, and the attempt failed.

    Attributes:
        handler: the handler's name.
        ran_s: the seconds that it ran.
        expected: the seconds that it may run.
    """


class HandlerExited(LogBookError):
    """A handler raised an error that ends programs or tasks, such as `SystemExit` or an unrequested `CancelledError`; the attempt failed.

    Attributes:
        handler: the handler's name. `__cause__` is the error that it raised.
    """


class HandlerConflict(LogBookError):
    """A record that a handler appends beside its transaction kept losing while no writer wrote what it expects; the attempt failed.

    Attributes:
        handler: the handler's name. `__cause__` is the newest Conflict.
    """
