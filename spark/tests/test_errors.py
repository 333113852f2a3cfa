"""Errors of the pipeline: one code, also where they are raised again."""

from __future__ import annotations

import pickle

from boki_common import errors
from boki_spark.errors import BadOption


def test_an_error_that_is_raised_again_has_its_code_once() -> None:
    error = BadOption("expected a number, found x", option="limit")
    assert str(error) == "[BOKI_BAD_OPTION] expected a number, found x"
    assert str(pickle.loads(pickle.dumps(error))) == str(error)
    assert str(errors.from_wire(errors.to_wire(error))) == str(error)
