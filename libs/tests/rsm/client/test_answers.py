"""Answers: the first one counts, and what was read is trimmed."""

from __future__ import annotations

import asyncio

import pytest

from bokilib.records import tags
from bokirsm import App, Ask, Machine, State, UnexpectedAnswer
from bokirsm.client import answers
from libs.tests.rsm.conftest import NewHost, NewRsm
from libs.tests.rsm.words import Best, Freq, Max


async def test_answers_are_trimmed_as_they_are_read(
    new_host: NewHost, new_rsm: NewRsm, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(answers, "TRIM_EVERY", 3)
    async with await new_host(name="h") as host:
        async with await new_rsm() as rsm:
            top = await rsm.create(Max, Freq("a", 1))
            for _ in range(10):
                assert await rsm.ask(Best().to(top)) == "a 1"
            tag = tags.rsm_replies(rsm._answers.process)
            while rsm._answers._trimming is not None:
                await asyncio.sleep(0)
            assert len([item async for item in host.rsm.log.book.read(tag)]) < 5
        assert [item async for item in host.rsm.log.book.read(tag)] == []


class Age(Ask[str]):
    pass


class Person(Machine[Age]):
    run = State(start=True)

    @run.on(Age)
    def age(self, e: Age) -> None:
        self.reply(e, "forty")


def as_another_program_declares_it() -> type[Ask[int]]:
    class Age(Ask[int]):
        pass

    return Age


async def test_an_answer_of_another_type_says_that_the_question_was_handled(new_host: NewHost) -> None:
    async with await new_host(App("people", [Person]), name="h") as host:
        person = await host.create(Person)
        other = as_another_program_declares_it()
        with pytest.raises(UnexpectedAnswer, match="handled the question Age") as unexpected:
            await host.ask(other().to(person))  # type: ignore[arg-type]
        assert not unexpected.value.definite and unexpected.value.facts["question"] == "Age"
        assert await host.ask(Age().to(person)) == "forty"
