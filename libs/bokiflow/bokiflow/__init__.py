"""Workflows that finish exactly once, even if the processes that run them die: durable functions on a LogBook.

    app = App("shop")

    @app.step(retry=Retry(attempts=5))
    async def charge(card: str, cents: int) -> str: ...

    @app.workflow
    async def checkout(order: str) -> str:
        receipt, _ = await asyncio.gather(charge(order, 500), reserve(order))
        await asyncio.sleep(86_400)                 # durable, like asyncio.timeout and wait_for
        return receipt

    async with Worker(app, client.book("shop"), name="host-7") as worker:
        handle = await worker.start(checkout.call("7"), id="order-7")
        print(await handle.result())

- The body of a step runs at least once, its outcome is recorded once. Every replay delivers outcomes to the code in the same order.
- Code of a workflow is plain asyncio. With the same deliveries it has to do the same: random values and effects outside belong in steps.
- There is no server beside the log: any number of workers share the workflows of a book, and take over from workers that die.
"""

from boki_common.runtime.bodies import ThreadBodies
from bokiflow.cancellation import WorkflowCancelled
from bokiflow.client.app import App
from bokiflow.client.flow import Flow
from bokiflow.client.handles import Handle
from bokiflow.client.schedules import Firing, Schedule, Schedules
from bokiflow.errors import (
    IdExpired,
    IdReused,
    LockRefused,
    NonDeterminism,
    NoSuchWorkflow,
    NotInWorkflow,
    NotRegistered,
    OnlyInSteps,
    ResultExpired,
    StepFailed,
    StepInterrupted,
    UnfitStore,
    WorkflowBlocked,
    WorkflowStuck,
)
from bokiflow.execute.traces import Tracing
from bokiflow.history.inspection import Done, Known
from bokiflow.history.instance_state import Status
from bokiflow.history.listing import WorkflowPage
from bokiflow.locks.locks import Lock, LockMode, lock
from bokiflow.model.cron import Missed, Skipped, Timing
from bokiflow.retention.collector import Collected, collect
from bokiflow.runtime.calls import Call, Retry, Step, SyncStep, Workflow
from bokiflow.runtime.in_workflow import (
    as_completed,
    deprecate_patch,
    due_ms,
    emit,
    now_ms,
    patched,
    random,
    recv,
    restart,
    send,
    transact,
    unique,
    workflow_id,
)
from bokiflow.worker.worker import Worker
from bokilib.errors import AppendUnknown, AtomicTooLarge, Fenced, NotEncodable, PartlyApplied, WrongBook
from bokilib.records.codec import Json

__all__ = [
    "App",
    "AppendUnknown",
    "AtomicTooLarge",
    "Call",
    "Collected",
    "Done",
    "Fenced",
    "Firing",
    "Flow",
    "Handle",
    "IdExpired",
    "IdReused",
    "Json",
    "Known",
    "Lock",
    "LockMode",
    "LockRefused",
    "Missed",
    "NoSuchWorkflow",
    "NonDeterminism",
    "NotEncodable",
    "NotInWorkflow",
    "NotRegistered",
    "OnlyInSteps",
    "PartlyApplied",
    "ResultExpired",
    "Retry",
    "Schedule",
    "Schedules",
    "Skipped",
    "Status",
    "Step",
    "StepFailed",
    "StepInterrupted",
    "SyncStep",
    "ThreadBodies",
    "Timing",
    "Tracing",
    "UnfitStore",
    "Worker",
    "Workflow",
    "WorkflowBlocked",
    "WorkflowPage",
    "WorkflowCancelled",
    "WorkflowStuck",
    "WrongBook",
    "as_completed",
    "collect",
    "deprecate_patch",
    "due_ms",
    "emit",
    "lock",
    "now_ms",
    "patched",
    "random",
    "recv",
    "restart",
    "send",
    "transact",
    "unique",
    "workflow_id",
]
