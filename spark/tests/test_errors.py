"""Every error that leaves the pipeline begins with one stable code, also one that a layer below raised."""

from __future__ import annotations

import pickle
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TypeVar

import pytest

from boki_common import errors
from boki_common.errors import BokiError
from boki_spark.errors import BadOption, PipelineError, ReadFault, coded, with_code

PAGE = Path(__file__).parents[2] / "docs" / "spark.md"


K = TypeVar("K", bound=BokiError)


def all_of(kind: type[K], module: str) -> Iterator[type[K]]:
    """Yield all subclasses of a class that a module defines."""
    for one in kind.__subclasses__():
        if one.__module__ == module:
            yield one
        yield from all_of(one, module)


BELOW = sorted(set(all_of(BokiError, errors.__name__)), key=lambda one: one.__name__)
OWN = list(all_of(PipelineError, PipelineError.__module__))


@pytest.mark.parametrize("kind", BELOW)
def test_each_error_of_what_is_below_has_a_code_and_names_what_it_was(kind: type[BokiError]) -> None:
    error = kind("expected this, found that")
    coded = with_code(error)
    assert re.match(r"\[BOKI_[A-Z_]+\] " + kind.__name__ + ": expected this, found that", str(coded))
    assert error.definite or not coded.definite or isinstance(coded, ReadFault), "unknown is not no"


@pytest.mark.parametrize(
    ("kind", "code"),
    [
        (errors.Unauthenticated, "BOKI_ACCESS"),
        (errors.WrongCluster, "BOKI_ACCESS"),
        (errors.InvalidArgument, "BOKI_BAD_OPTION"),
        (errors.SettingsError, "BOKI_BAD_OPTION"),
        (errors.Unreachable, "BOKI_UNREACHABLE"),
        (errors.CallTimeout, "BOKI_UNREACHABLE"),
        (errors.MetadataUnavailable, "BOKI_UNREACHABLE"),
        (errors.NotEnoughBookies, "BOKI_UNREACHABLE"),
        (errors.OutcomeUnknown, "BOKI_OUTCOME_UNKNOWN"),
        (errors.Trimmed, "BOKI_TRIMMED"),
        (errors.Lost, "BOKI_DATA_LOSS"),
        (errors.CorruptData, "BOKI_DATA_LOSS"),
        (errors.DigestMismatch, "BOKI_DATA_LOSS"),
        (errors.TooManyWriters, "BOKI_PIPELINE"),
    ],
)
def test_errors_have_the_code_of_what_they_mean_to_a_job(kind: type[BokiError], code: str) -> None:
    with pytest.raises(PipelineError, match=rf"^\[{code}\] ") as caught, coded():
        raise kind("it is so")
    assert isinstance(caught.value.__cause__, kind)


def test_an_error_that_has_a_code_and_one_of_python_stay_as_they_are() -> None:
    own = BadOption("no such option")
    assert with_code(own) is own
    with pytest.raises(ZeroDivisionError), coded():
        raise ZeroDivisionError


def test_codes_are_each_of_one_error_and_documented() -> None:
    codes = [one.code for one in OWN]
    assert len(set(codes)) == len(codes) > 15
    page = PAGE.read_text()
    assert [code for code in codes if f"`{code}`" not in page] == ["BOKI_READ"], "a root: nobody raises it"


def test_an_error_that_is_raised_again_has_its_code_once() -> None:
    error = BadOption("expected a number, found x", option="limit")
    assert str(error) == "[BOKI_BAD_OPTION] expected a number, found x"
    assert str(pickle.loads(pickle.dumps(error))) == str(error)
    assert str(errors.from_wire(errors.to_wire(error))) == str(error)
