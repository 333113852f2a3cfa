"""Objects that refuse to be pickled."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable

import pytest

from boki_common.errors import UsageError
from boki_common.unpickled import Unpickled


class Slotted(Unpickled):
    __slots__ = ("a",)


class Named(Unpickled):
    def __repr__(self) -> str:
        return "<Named 'x'>"


@pytest.mark.parametrize("refused", [pickle.dumps, lambda it: pickle.dumps(it, 0), copy.copy, copy.deepcopy])
def test_it_is_refused_with_what_to_do(refused: Callable[[object], object]) -> None:
    for made in (Slotted(), {"in": [Named()]}):
        if refused is copy.copy and isinstance(made, dict):
            continue
        with pytest.raises(
            UsageError, match="bound to a client of this process: connect and open it in the process that uses"
        ):
            refused(made)
    with pytest.raises(UsageError, match=r"found <Named 'x'> \(.*test_unpickled\.Named\)"):
        pickle.dumps(Named())
    assert not hasattr(Slotted(), "__dict__")
