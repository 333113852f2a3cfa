"""Export of histories to files, and their replay against the code as it is, before a deploy or in a test.

    Path("golden/checkout.json").write_bytes(await export(flow.log, "order-7"))
    await replay(app, Path("golden/checkout.json").read_bytes())        # NonDeterminism: this code does something else

A history is JSON. A replay runs no step and needs no log.
"""

from __future__ import annotations

import asyncio
from typing import Final

import msgspec

from boki_common.errors import CorruptData
from bokiflow.client.app import App
from bokiflow.errors import NonDeterminism, NoSuchWorkflow
from bokiflow.history import inspection
from bokiflow.model import flow_events as events
from bokiflow.model.delivery_order import RecordedEvents, in_order
from bokiflow.runtime.instance import Instance
from bokilib.append.log import Log

VERSION: Final = 1


class _Record(msgspec.Struct, frozen=True):
    seqnum: int
    time_ms: int
    seen: int
    own: tuple[events.Delivered | events.Note | events.Effect, ...]
    incoming: tuple[events.Incoming, ...]


class _History(msgspec.Struct, frozen=True):
    version: int
    started: events.Started
    records: tuple[_Record, ...]
    start: int = 0
    restarted: events.Restarted | None = None


async def export(log: Log, id: str) -> bytes:
    """Return the history of a workflow as JSON.

    Raises:
        NoSuchWorkflow: no workflow has this id.
        Trimmed: the workflow ended, and its history is not kept any more.
    """
    if await inspection.newest(log, id, consistency="linearizable") is None:
        raise NoSuchWorkflow(f"there is no workflow {id!r}", id=id)
    found = await inspection.whole_history(log, id)
    made = [_Record(one.seqnum, one.time_ms, one.seen, one.own, one.incoming) for one in found.records]
    kept = _History(VERSION, found.started, tuple(made), found.start, found.restarted)
    return msgspec.json.format(msgspec.json.encode(kept))


async def replay(app: App, history: bytes) -> list[str]:
    """Replay a history.

    Args:
        app: the app with the code.
        history: a history from `export`.

    Returns:
        The steps, timers and other things that the code waits for at the end.

    Raises:
        NonDeterminism: the code does not do what the history says.
        NotRegistered: the app has no such workflow.
        CorruptData: this is no history.
    """
    try:
        read = msgspec.json.decode(history, type=_History)
    except (msgspec.DecodeError, UnicodeDecodeError) as fault:
        raise CorruptData(f"expected a history as `export` makes it, found: {fault}") from fault
    begins = read.started if read.restarted is None else read.restarted.started
    instance = Instance(begins, app.find(begins.name), read.restarted)
    delivered = in_order(
        RecordedEvents(one.seqnum, one.time_ms, one.seen, one.own, one.incoming) for one in read.records
    )
    loop = asyncio.get_running_loop()
    done: asyncio.Future[list[str]] = loop.create_future()

    def run() -> None:
        try:
            instance.replay(delivered, read.start)
            if isinstance(instance.fault, NonDeterminism):
                raise instance.fault
            done.set_result([] if instance.outcome is not None else instance.waits)
        except Exception as error:  # noqa: BLE001 - raised by the future in the caller
            done.set_exception(error)
        finally:
            instance.drop()

    loop.call_soon(run)
    return await done
