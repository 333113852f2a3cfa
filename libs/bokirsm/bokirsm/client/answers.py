"""The answers to the questions of one process: a stream of its own, followed from the first question on.

The first answer to a question counts. Answers are trimmed as they are read; a question is asked again by a program that did not see its
answer, under another number.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final

import msgspec

import boki
from boki_common.errors import BokiError, ClosedError
from boki_common.logs import get_logger
from bokilib.append.log import Log, Read
from bokilib.follow.follower import Follower
from bokilib.records import tags
from bokirsm.errors import MachineFaulted, NoSuchMachine, Refused, UnexpectedAnswer
from bokirsm.machine.values import Codec
from bokirsm.model.events import PICKER, Commit, Faulted, Reply

TRIM_EVERY: Final = 256
"""Records between two trims of a process's answers."""

log = get_logger(__name__)


class _Asked:
    """A question without an answer."""

    __slots__ = ("codec", "future", "question")

    def __init__(self, question: str, codec: Codec, future: asyncio.Future[Any]) -> None:
        self.question: Final = question
        self.codec: Final = codec
        self.future: Final = future


class Answers:
    """The questions of one process that have no answer yet. It belongs to one event loop.

    Attributes:
        process: the name under which answers come; no other object has it.
    """

    def __init__(self, opened: Log) -> None:
        self.process: Final = opened.incarnations.new_token()
        self._log: Final = opened
        self._follower: Final = Follower(opened, self._lost)
        self._tag: Final = tags.rsm_replies(self.process)
        self._asked: Final[dict[str, _Asked]] = {}
        self._numbers = 0
        self._read = 0
        self._untrimmed = 0
        self._trimming: asyncio.Task[None] | None = None

    async def begin(self) -> None:
        """Follow the answers, if they are not followed yet."""
        if self._tag not in self._follower:
            position = await self._log.book.now()
            if self._tag not in self._follower:
                self._follower.add(self._tag, position + 1, self._saw)

    def expect(self, question: str, codec: Codec) -> tuple[str, asyncio.Future[Any]]:
        """Return the asker of a new question, and the future of its answer. Drop it by `forget`.

        Args:
            question: the name of its class.
            codec: of the answer.
        """
        self._numbers += 1
        asker = f"{self.process}/{self._numbers}"
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._asked[asker] = _Asked(question, codec, future)
        return asker, future

    def forget(self, asker: str) -> None:
        """Wait no longer for an answer."""
        self._asked.pop(asker, None)

    def _saw(self, item: Read | boki.Gap | BokiError) -> None:
        if not isinstance(item, Read):
            log.error("answers are missing or unreadable: their questions end by time-out", error=str(item))
            return
        for event in PICKER.of(item.record.seqnum, item.envelope):
            if isinstance(event, (Commit, Faulted)):
                for reply in event.replies:
                    self._answer(reply)
        self._read, self._untrimmed = item.record.seqnum, self._untrimmed + 1
        if self._untrimmed >= TRIM_EVERY and self._trimming is None:
            self._untrimmed = 0
            self._trimming = asyncio.get_running_loop().create_task(self._trim(), name="bokirsm answers")
            self._trimming.add_done_callback(self._trimmed)

    def _lost(self, error: Exception) -> None:
        """Fail the questions, since their answers are not followed any more. The next question follows the stream again."""
        asked = list(self._asked.values())
        self._asked.clear()
        for one in asked:
            if not one.future.done():
                one.future.set_exception(error)

    def _answer(self, reply: Reply) -> None:
        asked = self._asked.pop(reply.asker, None)
        if asked is None or asked.future.done():
            return
        try:
            asked.future.set_result(_value(reply, asked))
        except BokiError as error:
            asked.future.set_exception(error)

    async def _trim(self) -> None:
        await self._log.book.trim([(self._tag, self._read + 1)])

    def _trimmed(self, task: asyncio.Task[None]) -> None:
        self._trimming = None
        if not task.cancelled() and (error := task.exception()) is not None:
            log.warning("answers not trimmed: trimmed later", error=repr(error))

    async def close(self) -> None:
        """Follow the answers no longer, fail the questions that wait for one, and trim those that were read."""
        self._lost(ClosedError("the client of machines was left: the question may be handled, its answer is not heard"))
        await self._follower.close()
        if self._trimming is not None:
            await asyncio.gather(self._trimming, return_exceptions=True)
        if self._untrimmed:
            self._untrimmed = 0
            try:
                await self._trim()
            except BokiError as error:
                log.warning("answers not trimmed: their term is kept", error=repr(error))


def _value(reply: Reply, asked: _Asked) -> Any:
    """Return an answer.

    Raises:
        Refused, MachineFaulted: the machine did not answer.
        NoSuchMachine: there was no machine to handle the question.
        UnexpectedAnswer: the answer has another type than this program expects.
    """
    if reply.outcome == "refused":
        raise Refused(msgspec.msgpack.decode(reply.body, type=str))
    if reply.outcome == "missing":
        machine = msgspec.msgpack.decode(reply.body, type=str)
        raise NoSuchMachine(
            f"expected {machine} to answer {asked.question}, found that it was never created or has halted: the question was dropped",
            machine=machine,
        )
    if reply.outcome == "faulted":
        machine, error = msgspec.msgpack.decode(reply.body, type=tuple[str, str])
        raise MachineFaulted(
            f"{machine} failed with {error} and waits: mend its code and resume it, or skip the event; the question may be handled then",
            machine=machine,
            error=error,
        )
    try:
        return asked.codec.decode(reply.body)
    except Exception as error:
        raise UnexpectedAnswer(
            f"the machine handled the question {asked.question}, and its answer has another type than this program expects: {error}; "
            "give both programs the same class of the question",
            question=asked.question,
            found=str(error),
        ) from error
