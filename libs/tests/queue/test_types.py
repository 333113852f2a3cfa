"""Types: a typed program is accepted by pyright as it stands, and each of ten wrong ones is refused at its wrong line."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]

GOOD = """
from dataclasses import dataclass

import boki
import bokiflow
import bokiqueue.sync
from bokiflow import App, Flow, Worker
from bokiflow.client.in_atomic import signalling, starting
from bokiqueue import Limits, Message, Peeked, Queue, Received, Receiving, Stats
from bokistore import BokiStore, Transaction


@dataclass
class Email:
    to: str
    size: int = 0


async def program(client: boki.Client) -> None:
    store = BokiStore(client.book("shop"))
    emails = await Queue.open(store.log, "emails", Email, shards=4, limits=Limits(in_flight=8), dead_letter="dead")
    place: int = await emails.push(Email("ann"), key="ann", dedup_id="e-1")
    await emails.push_many([Email("bob"), Email("cleo")])
    async with emails.consume(group="default", prefetch=8) as messages:
        async for message in messages:
            async with message:
                size: int = message.body.size + message.attempt
                print(size, message.key, place)
            await message.nack(1.5)
            break

    @emails.handler(store, at_once=4)
    async def send(message: Message[Email], tx: Transaction) -> None:
        tx["sent"].inc(message.body.to)
        tx.add(emails.pushed(message.body))

    await send.run()
    stats: Stats = await emails.stats()
    peeked: list[Peeked] = await emails.peek(stats.depth)
    moved: int = await emails.redrive()
    numbers = await Queue.open(client.book("b"), "numbers", int, mode="pop")
    number: int = await numbers.pop(timeout=1)
    print(peeked, moved + number)


app = App("shop")


@app.workflow
async def ship(to: str) -> int:
    return len(to)


async def with_workflows(client: boki.Client) -> None:
    store = BokiStore(client.book("shop"))
    emails = await Queue.open(store.log, "emails", Email, limits=Limits(key_per_second=1.5))
    flow = Flow(app, store.log)

    @emails.handler(store)
    async def begin(message: Message[Email], tx: Transaction) -> None:
        tx.add(await starting(flow, ship.call(message.body.to), id=message.body.to))
        tx.add(signalling(flow, "count", "email", message.body.size))

    async def take(tx: Received[Email, Transaction]) -> int:
        tx.store["sent"].inc(tx.body.to)
        return tx.body.size

    async with emails.consume() as messages, begin:
        received = Receiving(messages, store)

        @app.workflow
        async def consume() -> int:
            size: int = await bokiflow.transact(received, take)
            return size

        async with Worker(app, store.log) as worker:
            size: int = await (await worker.start(consume.call(), id="x")).result()
            print(size)


def blocking(client: boki.sync.Client) -> str:
    queue = bokiqueue.sync.Queue.open(client.book("shop"), "emails", Email)
    queue.push(Email("ann"))
    with queue.consume() as messages:
        for message in messages:
            with message:
                return message.body.to
    return ""
"""

WRONG = {
    "a message of another type": 'await emails.push("ann")',
    "a batch of another type": "await emails.push_many([1, 2])",
    "a key that is a number": 'await emails.push(Email("ann"), key=5)',
    "a field that is not there": "message.body.name",
    "a result of another type": "text: str = await emails.push(Email('ann'))",
    "a mode that is none": 'await Queue.open(book, "q", Email, mode="both")',
    "a type that is a value": 'await Queue.open(book, "q", 5)',
    "a delay that is a text": 'await message.nack("1")',
    "a store that runs nothing": "emails.handler(book)",
    "a message that is iterated": "[one for one in message]",
}

FRAME = """
from dataclasses import dataclass

import boki
from bokiqueue import Message, Queue


@dataclass
class Email:
    to: str


async def program(emails: Queue[Email], message: Message[Email], book: boki.Book) -> None:
"""


@pytest.mark.processes
@pytest.mark.timeout(300)
def test_pyright_in_its_strict_mode(tmp_path: Path) -> None:
    (tmp_path / "good.py").write_text(GOOD)
    for number, line in enumerate(WRONG.values()):
        (tmp_path / f"wrong{number:02}.py").write_text(f"{FRAME}    {line}\n")
    paths = [
        str(ROOT / folder)
        for folder in ("libs/bokiqueue", "libs/bokiflow", "libs/bokistore", "libs/bokilib", "logbook", "common")
    ]
    settings = {
        "typeCheckingMode": "strict",
        "pythonVersion": "3.11",
        "extraPaths": paths,
        "venvPath": str(ROOT),
        "venv": ".venv",
        "reportUnusedExpression": "none",
    }
    (tmp_path / "pyrightconfig.json").write_text(json.dumps(settings))
    command = [sys.executable, "-m", "pyright", "--outputjson", "--project", str(tmp_path)]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=280, check=False)
    faults: dict[str, list[int]] = {}
    for one in json.loads(ran.stdout)["generalDiagnostics"]:
        faults.setdefault(Path(one["file"]).name, []).append(one["range"]["start"]["line"])
    assert "good.py" not in faults, ran.stdout
    last = FRAME.count("\n")
    expected = {f"wrong{number:02}.py": {last} for number in range(len(WRONG))}
    assert {name: set(lines) for name, lines in faults.items()} == expected, ran.stdout
