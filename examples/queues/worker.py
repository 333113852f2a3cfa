"""A process of producers or of consumers of a queue.

    python -m examples.queues.worker URL --name p1 --role produce --clients 2 --shards 8 --every-ms 20 --notes FILE
    python -m examples.queues.worker URL --name c1 --role consume --clients 4 --shards 8

A producer pushes at a fixed rate. It notes each message in FILE.NAME before the push (`? ID`) and once it is acknowledged (`! ID`).
A push without an answer is repeated under the same id. A consumer pushes a receipt for each message that it handled, in
the same record as the acknowledgement. The process runs until its standard input closes, and prints nothing.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Awaitable, Callable
from typing import Final

import msgspec

import boki
from boki_common.errors import BokiError
from bokilib import Atomic, Log
from bokiqueue import Message, Queue
from examples.process import parser, serve

BOOK: Final = "paper"
SIZE: Final = 1_024
LEASE_S: Final = 3.0
TIMEOUT_S: Final = 10.0
AT_ONCE: Final = 8


class WorkItem(msgspec.Struct, frozen=True):
    """Message of a producer.

    Attributes:
        id: unique id; the deduplication id of its push.
        sent_ms: time of the push by the clock of this machine.
        padding: bytes that give the message its size.
    """

    id: str
    sent_ms: float
    padding: str


class Receipt(msgspec.Struct, frozen=True):
    """Message of a consumer: a work item was handled.

    Attributes:
        id: id of the work item.
        took_ms: time from push to handling.
    """

    id: str
    took_ms: float


def now_ms() -> float:
    """Return milliseconds since the epoch by the clock of this machine."""
    return time.time_ns() / 1e6


async def queues(book: boki.Book, shards: int) -> tuple[Queue[WorkItem], Queue[Receipt]]:
    """Open the queue of work items and the queue of receipts."""
    log = Log(book)
    work = await Queue.open(log, "work", WorkItem, shards=shards, max_deliveries=0, dedup_s=3_600)
    return work, await Queue.open(log, "done", Receipt, shards=1)


class NoteFile:
    """File of notes that survives a kill: each line is one write of the kernel."""

    def __init__(self, file: str) -> None:
        self._file = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    def note(self, mark: str, id: str) -> None:
        """Append the line `MARK ID`."""
        line = f"{mark} {id}\n".encode()
        assert os.write(self._file, line) == len(line)


async def produce(work: Queue[WorkItem], name: str, every_s: float, notes: NoteFile, stop: asyncio.Event) -> None:
    """Push a message every `every_s`, or as soon as the last one is acknowledged if that takes longer, until `stop` is set."""
    number = 0
    loop = asyncio.get_running_loop()
    turn = loop.time()
    while not stop.is_set():
        number += 1
        id = f"{name}/{number}"
        notes.note("?", id)
        body = WorkItem(id, now_ms(), "x" * SIZE)
        while True:
            try:
                await work.push(body, dedup_id=id)
                break
            except BokiError as error:
                if error.definite and not error.retryable:
                    raise
        notes.note("!", id)
        turn = max(turn + every_s, loop.time())
        try:
            async with asyncio.timeout_at(turn):
                await stop.wait()
        except TimeoutError:
            pass


class AtomicRunner:
    """Transaction runner for a handler: each transaction is one record of the log."""

    def __init__(self, log: Log) -> None:
        self._log = log

    async def transact(self, body: Callable[[Atomic], Awaitable[None]]) -> None:
        """Run a body and append what it adds; see `bokiqueue.Queue.handler`."""
        async with Atomic(self._log) as tx:
            await body(tx)


async def consume(client: boki.Client, shards: int, name: str, stop: asyncio.Event) -> None:
    """Handle messages as one member of the queue's consumers until `stop` is set."""
    work, done = await queues(client.book(BOOK), shards)

    @work.handler(AtomicRunner(work.log), at_once=AT_ONCE, who=name, member_lease_s=LEASE_S, backoff_s=0.1)
    async def handle(message: Message[WorkItem], tx: Atomic) -> None:
        body = message.body
        tx.add(done.pushed(Receipt(body.id, now_ms() - body.sent_ms)))

    async with handle:
        await stop.wait()


def main() -> None:
    """Run the process."""
    made = parser("examples.queues.worker")
    made.add_argument("--role", choices=("produce", "consume"), required=True, help="what the clients do")
    made.add_argument("--clients", type=int, required=True, help="number of producers or consumers")
    made.add_argument("--shards", type=int, required=True, help="number of shards of the queue")
    made.add_argument("--every-ms", type=float, default=20.0, help="time between messages of a producer")
    made.add_argument("--notes", metavar="FILE", help="file of a producer's notes, to which .NAME is added")
    arguments = made.parse_args()

    async def run(stop: asyncio.Event) -> None:
        names = [f"{arguments.name}-{number}" for number in range(arguments.clients)]
        async with boki.connect(arguments.url, timeout=TIMEOUT_S) as client, asyncio.TaskGroup() as group:
            if arguments.role == "consume":
                for name in names:
                    group.create_task(consume(client, arguments.shards, name, stop))
                return
            work, _ = await queues(client.book(BOOK), arguments.shards)
            notes = NoteFile(f"{arguments.notes}.{arguments.name}")
            for name in names:
                group.create_task(produce(work, name, arguments.every_ms / 1000, notes, stop))

    serve(run)


if __name__ == "__main__":
    main()
