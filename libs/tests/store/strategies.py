"""Objects and operations for property tests: few keys, so that operations meet."""

from __future__ import annotations

from hypothesis import strategies as st

from bokistore import Delete, Inc, MakeArray, MakeObject, Merge, Pop, Push, Set

NUMBERS = st.integers(-3, 3) | st.sampled_from([0.5, 2**63 - 1, -(2**63), 1e308])
JSON = st.recursive(
    st.none() | st.booleans() | NUMBERS | st.sampled_from(["", "x"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["a", "b", "0"]), inner, max_size=3),
    max_leaves=6,
)
OBJECTS = st.dictionaries(st.sampled_from(["a", "b", "0"]), JSON, max_size=3)
PATHS = st.lists(st.sampled_from(["a", "b", "0", "1", "2"]), max_size=3).map(".".join)
OPERATIONS = st.one_of(
    st.builds(Set, PATHS, JSON),
    st.builds(MakeObject, PATHS),
    st.builds(MakeArray, PATHS),
    st.builds(Push, PATHS, JSON, st.none() | st.integers(1, 3)),
    st.builds(Pop, PATHS),
    st.builds(Inc, PATHS, NUMBERS),
    st.builds(Delete, PATHS),
    st.builds(Merge, PATHS, OBJECTS),
)
