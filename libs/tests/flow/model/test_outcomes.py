"""How things ended: what is stored comes back."""

from __future__ import annotations

import asyncio
import sys
import types
from pathlib import Path
from typing import Any

import msgspec
import pytest

from bokiflow.errors import StepFailed
from bokiflow.model.outcomes import (
    AT_THE_FUNCTION,
    AT_THE_WORKFLOW,
    CANCELLED_OUTCOME,
    IN_ITS_MODULE,
    NOT_IN_ITS_MODULE,
    Failure,
    Outcome,
    RecordedFailure,
    error_of,
    failed,
    lost_class,
    missing_class,
    succeeded,
)
from bokilib import NotEncodable


class Declined(Exception):
    """An error of a user, with more than its arguments."""

    def __init__(self, card: str, *, cents: int) -> None:
        super().__init__(f"{card} was declined")
        self.cents = cents
        self.client = object()


def stored(outcome: Outcome) -> Outcome:
    """What comes back from the log."""
    return msgspec.msgpack.decode(msgspec.msgpack.encode(outcome), type=Outcome)


def back(error: BaseException) -> BaseException:
    failure = stored(failed(error)).error
    assert failure is not None
    return error_of(failure)


def test_values_come_back() -> None:
    assert stored(succeeded({"a": (1, None)})).value == {"a": [1, None]}
    with pytest.raises(NotEncodable):
        succeeded(object())


def test_errors_come_back_as_their_class_with_what_of_them_is_json() -> None:
    error = back(Declined("visa", cents=5))
    assert isinstance(error, Declined) and str(error) == "visa was declined"
    assert error.cents == 5 and not hasattr(error, "client")
    assert repr(back(ValueError(1, "a"))) == "ValueError(1, 'a')"
    assert isinstance(back(NotEncodable("no")), NotEncodable)


def test_a_class_is_looked_for_among_the_names_of_the_function_first() -> None:
    failure = Failure("made.up:Declined.Inner", "no", ["visa"])
    Declined.Inner = ValueError  # type: ignore[attr-defined]
    found = error_of(failure, {"__name__": "made.up", "Declined": Declined})
    assert repr(found) == "ValueError('visa')"
    assert isinstance(error_of(failure), StepFailed)


def module(monkeypatch: pytest.MonkeyPatch, name: str, source: str) -> dict[str, Any]:
    """Make a module that this program has imported; return its names."""
    made = types.ModuleType(name)
    monkeypatch.setitem(sys.modules, name, made)
    exec(source, made.__dict__)
    return vars(made)


DECLINED = "class Declined(Exception): pass"


def kinds(failure: Failure, *places: dict[str, Any]) -> tuple[type[Exception], bool]:
    """Return the class of an error that is read again, and whether the class that it had is missing."""
    missing = missing_class(failure, *places) is not None
    return type(error_of(failure, *places)), missing


def failure_of(error: BaseException, names: dict[str, Any]) -> Failure:
    failure = stored(failed(error, names)).error
    assert failure is not None
    return failure


@pytest.mark.parametrize("left", ["nothing", "a module without it", "a copy"])
def test_a_class_that_moved_with_its_function_is_found_there(monkeypatch: pytest.MonkeyPatch, left: str) -> None:
    old = module(monkeypatch, "moved_from", DECLINED)
    failure = failure_of(old["Declined"]("no"), old)
    assert kinds(failure, old) == (old["Declined"], False)
    if left == "nothing":
        monkeypatch.delitem(sys.modules, "moved_from")
    elif left == "a module without it":
        del old["Declined"]
    new = module(monkeypatch, "moved_to", DECLINED)
    assert kinds(failure, new) == ((StepFailed, True) if left == "a copy" else (new["Declined"], False))


def test_a_class_and_its_copy_are_told_apart_by_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    old = module(monkeypatch, "moved_from", DECLINED)
    failure = stored(failed(old["Declined"]("no"), old, old)).error
    assert failure is not None
    new = module(monkeypatch, "moved_to", DECLINED)
    assert kinds(failure, new, old) == (StepFailed, True), "the function raises the class of the new module today"
    assert kinds(failure, new, new) == (StepFailed, True), "its `except` would pass over the class of the old module"
    text = str(lost_class(failure, "step 'pay' (0:1)", "x", "shop", new, new))
    assert "may be either of two classes of this program, moved_from:Declined and moved_to:Declined" in text
    del old["Declined"]
    assert kinds(failure, new, new) == (new["Declined"], False)
    assert kinds(failure, new, module(monkeypatch, "a_third", DECLINED)) == (StepFailed, True)


def test_a_place_that_had_another_class_of_that_name_is_never_used(monkeypatch: pytest.MonkeyPatch) -> None:
    bank, shop, fraud = (module(monkeypatch, name, DECLINED) for name in ("a_bank", "a_shop", "of_fraud"))
    of_bank = stored(failed(bank["Declined"]("no"), shop, fraud)).error
    of_shop = stored(failed(shop["Declined"]("no"), shop, fraud)).error
    assert of_bank is not None and of_shop is not None
    assert kinds(of_bank, shop, fraud) == (bank["Declined"], False)
    assert kinds(of_shop, shop, fraud) == (shop["Declined"], False)
    del bank["Declined"], shop["Declined"]
    shop["Declined"] = fraud["Declined"]
    assert kinds(of_bank, shop, fraud) == (StepFailed, True)
    del shop["Declined"]
    assert kinds(of_shop, shop, fraud) == (StepFailed, True), "the workflow's module had another one then"
    text = str(lost_class(of_shop, "step 'pay' (0:1)", "x", "shop", shop, fraud))
    assert "in a_shop or in the module of the step (`from … import Declined`, `Declined = NewName`)" in text


def test_a_class_that_only_the_workflow_names_is_found_there_after_a_move(monkeypatch: pytest.MonkeyPatch) -> None:
    bank, shop = module(monkeypatch, "a_bank", DECLINED), module(monkeypatch, "a_shop", "")
    shop["Declined"] = bank["Declined"]
    failure = stored(failed(bank["Declined"]("no"), bank | {"Declined": None}, shop)).error
    assert failure is not None and failure.known_by == IN_ITS_MODULE | AT_THE_WORKFLOW
    shop["Declined"] = module(monkeypatch, "new_bank", DECLINED)["Declined"]
    monkeypatch.delitem(sys.modules, "a_bank")
    assert kinds(failure, {}, shop) == (shop["Declined"], False)


def test_a_class_made_under_the_name_of_another_is_not_taken_for_that(monkeypatch: pytest.MonkeyPatch) -> None:
    bank = module(monkeypatch, "a_bank", DECLINED)
    made = type("Declined", (Exception,), {"__module__": "a_bank"})
    assert kinds(failure_of(made("no"), {}), {}) == (StepFailed, False)
    shop = module(monkeypatch, "a_shop", "")
    shop["Declined"] = made
    failure = failure_of(made("no"), shop)
    assert failure.known_by == AT_THE_FUNCTION | NOT_IN_ITS_MODULE
    assert kinds(failure, shop) == (made, False)
    del shop["Declined"]
    assert kinds(failure, shop, bank) == (StepFailed, True)


def test_a_class_of_the_program_is_found_once_that_is_imported_and_back_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    as_program = module(monkeypatch, "__main__", DECLINED)
    failure = failure_of(as_program["Declined"]("no"), as_program)
    other = module(monkeypatch, "__main__", DECLINED)
    imported = module(monkeypatch, "errmain", DECLINED)
    assert failure.type == "__main__:Declined" and kinds(failure, imported) == (imported["Declined"], False)
    failure = failure_of(imported["Declined"]("no"), imported)
    monkeypatch.delitem(sys.modules, "errmain")
    assert kinds(failure, other) == (other["Declined"], False)


def test_another_class_of_the_same_name_at_the_function_is_not_taken_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    bank, shop = module(monkeypatch, "a_bank", DECLINED), module(monkeypatch, "a_shop", DECLINED)
    failure = failure_of(bank["Declined"]("no"), shop)
    assert kinds(failure, shop) == (bank["Declined"], False)
    monkeypatch.delitem(sys.modules, "a_bank")
    assert kinds(failure, shop) == (StepFailed, True)


def test_a_class_that_had_a_name_and_has_none_now_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    shop = module(monkeypatch, "a_shop", DECLINED)
    failure = failure_of(shop["Declined"]("no"), {})
    grouped = failure_of(ExceptionGroup("one", [shop["Declined"]("no")]), {})
    caused = failure_of(raised_from(ValueError(1), shop["Declined"]("no")), {})
    monkeypatch.delitem(sys.modules, "a_shop")
    assert kinds(failure) == (StepFailed, True)
    older = Failure(failure.type, failure.message)
    assert kinds(older) == (StepFailed, False), "as for the program that wrote it, which knew no missing classes"
    assert missing_class(grouped) == failure, "`except*` chooses by the classes in a group"
    assert missing_class(caused) is None


def raised_from(error: BaseException, cause: BaseException) -> BaseException:
    error.__cause__ = cause
    return error


def test_a_class_that_no_name_led_to_is_never_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    shop = module(monkeypatch, "a_shop", "def of(): return type('Declined', (Exception,), {})('no')")

    class Local(Exception):
        pass

    for error in (shop["of"](), Local("no"), SystemExit(3)):
        failure = failure_of(error, shop)
        assert kinds(failure, shop) == (StepFailed, False)
    made = failure_of(shop["of"](), shop)
    shop["Declined"] = Declined
    assert kinds(made, shop) == (StepFailed, False), "as it was when it was raised"


def test_a_module_that_the_step_imports_is_imported_to_find_its_class(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "a_late_bank.py").write_text(DECLINED)
    (tmp_path / "a_broken_bank.py").write_text("raise SystemExit(1)")
    shop = module(monkeypatch, "a_shop", DECLINED)
    failure = Failure("a_late_bank:Declined", "no", ["no"], known_by=IN_ITS_MODULE)
    assert missing_class(failure, shop) is None
    assert type(error_of(failure, shop)).__module__ == "a_late_bank"
    monkeypatch.delitem(sys.modules, "a_late_bank")
    failure = Failure("a_broken_bank:Declined", "no", known_by=IN_ITS_MODULE)
    assert kinds(failure, {}) == (StepFailed, True)


def test_the_module_of_the_program_is_not_imported_a_second_time(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "a_program.py").write_text(DECLINED)
    main = module(monkeypatch, "__main__", DECLINED)
    main["__file__"] = str(tmp_path / "a_program.py")
    failure = Failure("a_program:Declined", "no", known_by=IN_ITS_MODULE)
    assert kinds(failure, main) == (main["Declined"], False) and "a_program" not in sys.modules


def test_arguments_that_are_no_json_come_back_as_text() -> None:
    assert back(KeyError(object)).args == (str(object),)


@pytest.mark.parametrize("name", ["nowhere:Error", "builtins:print", "builtins:KeyboardInterrupt", "os:path", ":", ""])
def test_what_is_no_class_of_errors_of_this_program_is_a_step_failed(name: str) -> None:
    error = error_of(Failure(name, "it broke"))
    assert isinstance(error, StepFailed) and "it broke" in str(error)


def test_an_error_that_cannot_be_made_anew_is_a_step_failed() -> None:
    assert isinstance(error_of(Failure("builtins:UnicodeDecodeError", "bad", [])), (StepFailed, UnicodeDecodeError))


def test_cancellation_is_distinguished_from_failure() -> None:
    assert stored(CANCELLED_OUTCOME).cancelled and not failed(ValueError()).cancelled


class Unreadable(Exception):
    """An error of a user whose text cannot be read."""

    def __str__(self) -> str:
        raise RuntimeError("no text")


HALF_AN_EMOJI = "caf\udce9"


@pytest.mark.parametrize(
    "error",
    [
        ValueError(HALF_AN_EMOJI),
        UnicodeEncodeError("utf-8", HALF_AN_EMOJI, 3, 4, "surrogates not allowed"),
        ValueError("a" * 3_000_000),
        ValueError({"a": ["b" * 3_000_000]}),
        KeyError(HALF_AN_EMOJI, object()),
        Unreadable("x"),
    ],
    ids=["surrogate", "unicode error", "megabytes", "nested megabytes", "argument", "no text"],
)
def test_any_text_of_an_error_can_be_stored(error: Exception) -> None:
    outcome = failed(error)
    assert len(msgspec.msgpack.encode(outcome)) < 90_000
    assert type(back(error)) is type(error)


class WithoutText(Exception):
    def __str__(self) -> str:
        raise SystemExit(3)


class WithoutArguments(Exception):
    @property
    def args(self) -> Any:  # type: ignore[override]
        raise KeyboardInterrupt


class WithoutAttributes(Exception):
    def __getattr__(self, name: str) -> Any:
        raise RuntimeError(name)


class OddFact:
    def __str__(self) -> str:
        raise SystemExit(3)


def _with_notes(notes: Any) -> Exception:
    error = ValueError("text")
    error.__notes__ = notes
    return error


@pytest.mark.parametrize(
    "error",
    [
        WithoutText("text"),
        WithoutArguments("text"),
        WithoutAttributes("text"),
        ValueError(OddFact()),
        _with_notes(5),
        _with_notes(None),
    ],
    ids=["text", "arguments", "attributes", "fact", "notes", "no notes"],
)
def test_an_error_whose_own_code_raises_has_an_outcome(error: Exception) -> None:
    try:
        raise error
    except Exception as caught:  # noqa: BLE001 - with its stack
        outcome = failed(caught, globals())
    assert outcome.error is not None and outcome.error.type.endswith(type(error).__name__)
    assert "raise error" in outcome.error.stack
    assert type(error_of(outcome.error, globals())) in (type(error), StepFailed)


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt(), GeneratorExit(), StopIteration(1)])
def test_errors_that_no_coroutine_can_be_given_are_step_failed(error: BaseException) -> None:
    found = back(error)
    assert isinstance(found, StepFailed) and type(error).__name__ in str(found)


def raised(error: BaseException) -> BaseException:
    try:
        raise error
    except BaseException as caught:  # noqa: BLE001 - it is returned
        return caught


def test_causes_notes_and_the_stack_come_back() -> None:
    def lookup() -> None:
        try:
            raise KeyError("shelf 7")
        except KeyError as fault:
            fault.add_note("of the second floor")
            raise ValueError("no such book") from fault

    with pytest.raises(ValueError) as caught:
        lookup()
    failure = failed(caught.value).error
    assert failure is not None and "in lookup" in failure.stack and "raise ValueError" in failure.stack
    found = back(error_of(failure))
    assert repr(found.__cause__) == "KeyError('shelf 7')"
    assert found.__cause__ is not None and found.__cause__.__notes__ == ["of the second floor"]


def test_the_stack_of_a_step_is_kept_when_the_workflow_fails_with_its_error() -> None:
    of_step = failed(raised(ValueError("x"))).error
    assert of_step is not None
    of_workflow = failed(raised(error_of(of_step))).error
    assert of_workflow is not None
    assert of_workflow.stack.startswith(of_step.stack) and "raised again by the workflow" in of_workflow.stack


def test_groups_come_back_with_their_errors() -> None:
    found = back(ExceptionGroup("two of three", [ValueError(1), ExceptionGroup("inner", [KeyError("a")])]))
    assert isinstance(found, ExceptionGroup) and found.message == "two of three"
    assert repr(found.exceptions) == "(ValueError(1), ExceptionGroup('inner', [KeyError('a')]))"
    found = back(BaseExceptionGroup("one left", [SystemExit(2), ValueError(1)]))
    assert isinstance(found, ExceptionGroup) and isinstance(found.exceptions[0], StepFailed)
    many = failed(ExceptionGroup("many", [ValueError(n) for n in range(1_000)])).error
    assert many is not None and many.detail is not None and len(many.detail.errors) == 16


def test_the_text_of_an_error_names_the_errors_of_its_group_and_its_causes() -> None:
    def text(error: BaseException) -> str:
        failure = failed(error).error
        assert failure is not None
        return failure.text

    group = ExceptionGroup("unhandled errors in a TaskGroup", [ValueError("no plum"), KeyError()])
    message = "unhandled errors in a TaskGroup (2 sub-exceptions)"
    assert text(group) == f"{message} [ValueError: no plum; KeyError]"
    outer = RuntimeError("order 7")
    outer.__cause__ = group
    assert text(outer) == f"order 7 (cause: ExceptionGroup: {message} [ValueError: no plum; KeyError])"
    many = text(ExceptionGroup("many", [ValueError(n) for n in range(9)]))
    assert many.endswith("[ValueError: 0; ValueError: 1; ValueError: 2; 6 more]")
    long = RuntimeError("x")
    long.__cause__ = ValueError("y" * 4_000)
    assert len(text(long)) < 600 and text(long).endswith("…")
    stopped = TimeoutError("too long")
    stopped.__cause__ = asyncio.CancelledError()
    assert text(stopped) == "too long" and text(ValueError("x")) == "x"


def test_an_error_that_is_recorded_again_is_recorded_unchanged() -> None:
    failure = Failure("gone:Declined", "no", ["visa"], known_by=AT_THE_FUNCTION)
    assert failed(RecordedFailure(failure)).error == failure


def test_errors_of_older_records_have_no_stack() -> None:
    old = msgspec.msgpack.encode([None, ["builtins:ValueError", "x", ["x"], None]])
    outcome = msgspec.msgpack.decode(old, type=Outcome)
    assert (
        outcome.error is not None and outcome.error.stack == "" and repr(error_of(outcome.error)) == "ValueError('x')"
    )
