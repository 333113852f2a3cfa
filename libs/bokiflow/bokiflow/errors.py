"""What workflows raise beside the errors of the SDK and of `bokilib`. `WorkflowCancelled` is apart (`cancellation`).

BokiError
├── UsageError      IdReused, NoSuchWorkflow, NotRegistered, NotInWorkflow, OnlyInSteps, UnfitStore, NonDeterminism, WorkflowStuck
└── LogBookError    StepFailed, StepInterrupted, LockRefused, CannotLook, ResultExpired, IdExpired, WorkflowBlocked
"""

from __future__ import annotations

from typing import Final

from boki_common.errors import InvalidArgument, LogBookError, UsageError


class IdReused(InvalidArgument):
    """An id was started before, with another workflow or other arguments. Nothing was started.

    Attributes:
        id: of the workflow. expected, found: name and digest of what was to be started, and of what is there.
    """


class NoSuchWorkflow(InvalidArgument):
    """No workflow of this id was ever started, or it is forgotten.

    Attributes:
        id: of the workflow.
    """


class NotRegistered(UsageError):
    """A workflow's name is not among those of this program: import the module that defines it.

    Attributes:
        found: the name. expected: names that are known.
    """


class NotInWorkflow(UsageError, RuntimeError):
    """Only within a workflow this can be called."""


class OnlyInSteps(UsageError, RuntimeError):
    """Code of a workflow called what only a step may call: threads, sockets, subprocesses, clients, stores, queues."""


class UnfitStore(InvalidArgument):
    """A store that `bokiflow.transact` cannot use: it is not made of the worker's own Log, or has no transactions across workflows."""


SET_UP: Final = (NotInWorkflow, OnlyInSteps, UnfitStore)
"""Errors of a program, not of its data. One that leaves the code of a workflow blocks the workflow, and mended code goes on with it."""


class WorkflowStuck(UsageError):
    """Code of a workflow ran on without waiting for anything: it is blocked until somebody resumes or cancels it.

    Attributes:
        id: of the workflow. stack: of its code when it was stopped, innermost call last.
    """


class NonDeterminism(UsageError):
    """Code of a workflow does not do what its history says: it was changed, or it depends on what a replay cannot know.

    Attributes:
        id: of the workflow. expected: what the history has. found: what the code did.
    """


class StepFailed(LogBookError):
    """A step or a child raised an error whose class this program does not have.

    Attributes:
        type: name of the class.
    """


class StepInterrupted(LogBookError):
    """A step that shall run at most once was begun, and nobody knows how it ended."""


class LockRefused(LogBookError):
    """A lock is not to be had now: others have it, and who asked does not wait, or must not.

    Attributes:
        name: of the lock. holder: id of a workflow that has it.
    """


class CannotLook(LogBookError):
    """What a workflow looks at without a record cannot be read, now or later: it is blocked until somebody changes something."""


class ResultExpired(LogBookError):
    """The workflow ended, and its result is no longer kept; perhaps another one has its id by now.

    Attributes:
        id: of the workflow.
    """


class IdExpired(LogBookError):
    """The id is that of a workflow that ended so long ago that its result is not kept any more, and so recently that it is not forgotten.
    Nothing was started. It is free again a little later, or take another one.

    Attributes:
        id: of the workflow.
    """

    retryable = True


class WorkflowBlocked(LogBookError):
    """A workflow cannot go on with the code of the worker that ran it. It goes on when a worker with code that fits begins, or when it is
    resumed.

    Attributes:
        id: of the workflow. found: why, as that worker recorded it.
    """
