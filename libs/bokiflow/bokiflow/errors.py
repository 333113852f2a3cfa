"""Errors of workflows, beside those of the SDK and of `bokilib`; `WorkflowCancelled` is in `cancellation`, since it is no BokiError.

BokiError
├── UsageError      IdReused, NoSuchWorkflow, NotRegistered, NotInWorkflow, OnlyInSteps, UnfitStore, NonDeterminism, WorkflowStuck
└── LogBookError    StepFailed, StepInterrupted, LockRefused, CannotLook, ResultExpired, IdExpired, WorkflowBlocked
"""

from __future__ import annotations

from typing import Final

from boki_common.errors import InvalidArgument, LogBookError, UsageError


class IdReused(InvalidArgument):
    """The id was used to start another workflow, or the same one with other arguments. Nothing was started.

    Attributes:
        id: the id.
        expected: the name and the digest of the call that was to be started.
        found: the name and the digest of the call that has the id.
    """


class NoSuchWorkflow(InvalidArgument):
    """No workflow of this id was ever started, or it is forgotten.

    Attributes:
        id: the id.
    """


class NotRegistered(UsageError):
    """This program has no workflow of this name: import the module that defines it.

    Attributes:
        found: the name.
        expected: the names of this program's workflows.
    """


class NotInWorkflow(UsageError, RuntimeError):
    """A function was called outside of a workflow's code that works only there."""


class OnlyInSteps(UsageError, RuntimeError):
    """Code of a workflow used threads, sockets, subprocesses, clients, stores or queues, which only steps may use."""


class UnfitStore(InvalidArgument):
    """A store that `bokiflow.transact` cannot use: it has another Log than the worker, or no transactions across workflows."""


SET_UP: Final = (NotInWorkflow, OnlyInSteps, UnfitStore)
"""Errors of a program, not of its data. If the code of a workflow raises one, the workflow is blocked, and resumes with corrected code."""


class WorkflowStuck(UsageError):
    """Code of a workflow ran for too long without waiting. The workflow is blocked until it is resumed or cancelled.

    Attributes:
        id: the id of the workflow.
        stack: the stack of its code when it was stopped, innermost call last.
    """


class NonDeterminism(UsageError):
    """Code of a workflow does not do what its history says: it was changed, or it depends on values that a replay does not have.

    Attributes:
        id: the id of the workflow.
        expected: the command in the history.
        found: the command of the code.
    """


class StepFailed(LogBookError):
    """A step or a child raised an error whose class this program does not have.

    Attributes:
        type: the name of the class.
    """


class StepInterrupted(LogBookError):
    """A step that runs at most once was begun, and its outcome is unknown because the process died."""


class LockRefused(LogBookError):
    """A lock is held by another workflow, and the caller does not wait for it, or may not.

    Attributes:
        name: the name of the lock.
        holder: the id of a workflow that holds it.
    """


class CannotLook(LogBookError):
    """Rows that a workflow looks at without a record cannot be read, and retries do not help. The workflow is blocked."""


class ResultExpired(LogBookError):
    """The workflow ended, and its result is no longer kept; a new workflow may have its id.

    Attributes:
        id: the id of the workflow.
    """


class IdExpired(LogBookError):
    """The id belongs to a workflow whose result is not kept any more, but which the log has not forgotten yet. Nothing was started.

    The id is free again a little later; or use another id.

    Attributes:
        id: the id.
    """

    retryable = True


class WorkflowBlocked(LogBookError):
    """A workflow is blocked: the code of its worker does not fit. It resumes when a worker with code that fits begins, or by `resume`.

    Attributes:
        id: the id of the workflow.
        found: the error that the worker recorded: a line with its class and text, then perhaps its stack. The message has the line.
    """
