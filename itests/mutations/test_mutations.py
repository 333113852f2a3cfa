"""Each fix of a known defect is taken out of a copy of the sources, and its test fails: so the tests hold what they name.

In every run only the cheap half: what would be taken out is still there, exactly once, and so are the tests, also those that
docs/defects.md names. The nightly half runs them.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

import pytest

from itests.mutations.catalogue import MUTATIONS
from itests.mutations.mutation import (
    FAILED,
    ROOT,
    Mutation,
    OutOfDate,
    check_test_exists,
    copy_sources,
    file_of,
    mutate,
    restore,
    run_tests,
)
from itests.mutations.patch import patches

PAGE: Final = ROOT / "docs/defects.md"
NAMED_TEST: Final = re.compile(r"`([\w/]+\.py)::([\w:]+)`")


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("sources")
    copy_sources(target)
    return target


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda one: one.name.replace(" ", "-"))
def test_what_is_taken_out_is_in_the_code_once_and_has_its_test(mutation: Mutation) -> None:
    for old, new in mutation.edits:
        assert old != new
        file_of(ROOT, mutation, old)
    check_test_exists(ROOT, mutation)


def test_the_page_of_defects_names_every_mutation_and_tests_that_exist() -> None:
    page = PAGE.read_text("utf-8")
    unnamed = [mutation.name for mutation in MUTATIONS if mutation.name not in page]
    assert not unnamed, f"docs/defects.md does not say what takes these out: {unnamed}"
    missing = []
    for name, test in NAMED_TEST.findall(page):
        path = ROOT / name
        bare = test.rpartition("::")[2]
        if not path.exists() or not re.search(rf"(def|class) {bare}\b", path.read_text("utf-8")):
            missing.append(f"{name}::{test}")
    assert not missing, f"docs/defects.md names tests that are not there: {missing}"


def test_a_mutation_whose_text_is_gone_or_there_twice_is_an_error() -> None:
    gone = Mutation("gone", "ledger", (("no such text at all", ""),), "ledger/tests/rules/test_acks.py::test_x")
    with pytest.raises(OutOfDate, match="nowhere"):
        file_of(ROOT, gone, "no such text at all")
    with pytest.raises(OutOfDate, match="expected once"):
        file_of(ROOT, gone, "from __future__ import annotations")
    with pytest.raises(OutOfDate, match="no test"):
        check_test_exists(ROOT, gone)


def test_a_mutation_that_names_what_is_not_there_is_an_error(tmp_path: Path) -> None:
    file = tmp_path / "ledger/boki_ledger/module.py"
    file.parent.mkdir(parents=True)
    file.write_text("one = 1\n")
    with pytest.raises(OutOfDate, match="Undefined name `absent`"):
        mutate(tmp_path, Mutation("names nothing", "ledger", (("one = 1", "one = absent"),), ""))
    with pytest.raises(OutOfDate, match="nowhere"):
        mutate(tmp_path, Mutation("half of it", "ledger", (("one = 1", "one = 2"), ("two", "")), ""))
    assert file.read_text() == "one = 1\n", "the next mutation finds the sources as they were"


def test_a_patch_is_read_as_the_edits_that_it_shows() -> None:
    [first, second] = patches("""
first
common a/test_b.py::test_c
-    whole line
@@
-, part
+
@@
     stays
+    comes
     stays too

second
cli
-old
+new
""")
    edits = (
        ("    whole line\n", ""),
        (", part", ""),
        ("    stays\n    stays too", "    stays\n    comes\n    stays too"),
    )
    assert first == Mutation("first", "common", edits, "a/test_b.py::test_c")
    assert second == Mutation("second", "cli", (("old", "new"),), "")


@pytest.mark.nightly
@pytest.mark.processes
@pytest.mark.timeout(900)
def test_with_nothing_taken_out_all_of_the_tests_pass(copy: Path) -> None:
    code, output = run_tests(copy, *dict.fromkeys(mutation.test for mutation in MUTATIONS), timeout_s=800)
    assert code == 0, output


@pytest.mark.nightly
@pytest.mark.processes
@pytest.mark.timeout(180)
@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda one: one.name.replace(" ", "-"))
def test_with_the_fix_taken_out_its_test_fails(copy: Path, mutation: Mutation) -> None:
    before = mutate(copy, mutation)
    try:
        code, output = run_tests(copy, mutation.test)
    finally:
        restore(before)
    assert code == FAILED, f"{mutation.test} passes without the fix\n{output}"
