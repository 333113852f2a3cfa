"""What can be taken out of what a person or a program meets first: status, append, clients. See docs/defects.md."""

from __future__ import annotations

from typing import Final

from itests.mutations.mutation import Mutation

_FAULTS: Final = "cli/tests/facts/test_cluster_faults.py"
_STATUS: Final = "cli/tests/facts/test_cluster_status.py"
_APPEND: Final = "cli/tests/records/test_append_command.py"
_RUNS: Final = "cli/tests/records/test_append_runs.py"
_WRITERS: Final = "itests/sdk/test_writers.py"

USERS_MUTATIONS: Final[tuple[Mutation, ...]] = (
    Mutation(
        "what is not listed is not missed",
        "cli",
        (
            (
                "one for one in expected if ",
                "one for one in expected if not one.place and ",
            ),
        ),
        f"{_STATUS}::test_what_is_expected_and_not_listed_is_down_and_says_how_to_forget_it",
    ),
    Mutation(
        "a cookie expects no bookie",
        "cli",
        (
            (
                "for name in await layout.bookie_cookies(store) if name not in there]",
                "for name in () if name not in there]",
            ),
        ),
        f"{_STATUS}::test_what_is_expected_and_not_listed_is_down_and_says_how_to_forget_it",
    ),
    Mutation(
        "whoever ends says goodbye",
        "cli",
        (
            (
                "    yield\n    try:\n        await registry.forget(parts.metadata, kind, made.place)\n",
                (
                    "    try:\n        yield\n    finally:\n        await registry.forget(parts.metadata, kind, made.place)\n"
                    "    try:\n        pass\n"
                ),
            ),
        ),
        "cli/tests/test_roles.py::test_a_role_that_fails_is_still_expected_and_one_that_ends_is_not",
    ),
    Mutation(
        "fewer copies than asked for are well",
        "cli",
        (("        elif writable < wanted:\n", "        elif writable < acks:\n"),),
        f"{_FAULTS}::test_redundancy_that_is_used_up_is_said",
    ),
    Mutation(
        "a bookie with ledgers is forgotten",
        "cli",
        (("    named = [] if with_ledgers else await _ledgers_of(store, bookie_id)\n", "    named: list[int] = []\n"),),
        "cli/tests/cluster/test_forget_command.py::test_a_bookie_that_ledgers_count_on_is_forgotten_only_with_them",
    ),
    Mutation(
        "after an unknown outcome the lower bound is skipped",
        "cli",
        (("        if ingest.failed:\n", "        if ingest.failed and not ingest.committed:\n"),),
        f"{_APPEND}::test_after_an_unknown_outcome_nobody_is_told_to_skip",
    ),
    Mutation(
        "a run that was cut short begins anew",
        "cli",
        (
            (
                "state is not None and state.open and state.skip == skip",
                "state is not None and state.open and state.skip == skip and not state.base + 1",
            ),
        ),
        f"{_RUNS}::test_a_run_that_was_cut_short_goes_on_under_its_writer_a_finished_one_does_not",
    ),
    Mutation(
        "another input continues a run",
        "cli",
        (("            if newest:\n                await source.check(newest)\n", ""),),
        f"{_APPEND}::test_an_input_that_is_another_one_by_now_is_refused",
    ),
    Mutation(
        "batches go on behind a failed one",
        "sdk",
        (
            (
                "        elif self._numbers.stale or first != self._numbers.next_number:\n",
                "        elif self._numbers.stale:\n",
            ),
        ),
        f"{_APPEND}::test_batches_behind_a_failed_one_are_not_appended",
    ),
    Mutation(
        "a child is not told that it was forked",
        "common",
        (("    for one in _kept:\n        one.forked()\n", ""),),
        "common/tests/runtime/test_forks.py::test_each_child_is_told_once_of_what_there_is_and_the_parent_is_not",
    ),
    Mutation(
        "a child takes apart what its parent uses",
        "common",
        (("    _kept.extend(_watched)\n    for one in _kept:\n", "    for one in list(_watched):\n"),),
        "common/tests/runtime/test_forks.py::test_what_was_copied_is_not_taken_apart_in_the_child",
    ),
    Mutation(
        "an iterator has many readers",
        "sdk",
        (("        if self._asking:\n            raise busy()\n", ""),),
        "itests/sdk/test_reads.py::test_an_iterator_has_one_reader_at_a_time_as_a_generator[memory]",
    ),
    Mutation(
        "one exception for all who wait",
        "sdk",
        (("else self._failure.again()", "else self._failure"),),
        "itests/sdk/test_failures.py::test_each_who_waits_when_the_client_is_closed_gets_an_exception_of_its_own[memory]",
    ),
    Mutation(
        "a dropped client keeps its thread",
        "common",
        (("            self.loop.call_soon_threadsafe(self.loop.stop)\n", "            pass\n"),),
        "common/tests/runtime/test_loop_thread.py::test_one_that_is_dropped_ends_with_its_thread_and_says_so",
    ),
    Mutation(
        "names of tags are of the data's mebibyte",
        "common",
        (
            ("        if most > limits.PAYLOAD_BYTES:\n", "        if most > limits.RECORD_BYTES:\n"),
            ("<= length <= limits.PAYLOAD_BYTES", "<= length <= limits.RECORD_BYTES"),
        ),
        "itests/sdk/test_limits.py::test_a_mebibyte_of_data_fits_whatever_its_tags[memory-none]",
    ),
    Mutation(
        "a token of any cluster is taken",
        "sdk",
        (
            (
                "    if None not in (cluster, found.cluster) and found.cluster != cluster:\n",
                "    if found.cluster == -1:\n",
            ),
        ),
        "logbook/tests/sdk/test_session.py::test_a_token_of_another_cluster_is_refused_at_once",
    ),
    Mutation(
        "appends are sent again to whoever answers",
        "sdk",
        (("        if None not in (mark, self.cluster) and mark != self.cluster:\n", "        if mark == -1:\n"),),
        "logbook/tests/sdk/test_connection.py::test_nothing_is_sent_again_to_another_cluster_at_the_same_address",
    ),
    Mutation(
        "a repeated number looks like a new one",
        "sdk",
        (("        if flags & ROW_DUPLICATE:\n            numbers.was_there(first, count, first_seqnum)\n", ""),),
        f"{_WRITERS}::test_two_users_of_one_name_with_equal_records_can_tell[memory]",
    ),
    Mutation(
        "an engine does not say what it had before",
        "logbook",
        (("ROW_DUPLICATE if actual is DUPLICATE else 0", "0"),),
        "logbook/tests/engine/apply/test_answers_due.py::test_numbers_that_were_committed_before_are_marked",
    ),
    Mutation(
        "a command ends at a refused first connection",
        "cli",
        (("            if loop.time() + PAUSE_S >= deadline:\n", "            if math.isfinite(deadline):\n"),),
        "cli/tests/test_clients.py::test_an_engine_that_comes_later_is_found",
    ),
    Mutation(
        "a spare stops at the usual port",
        "cli",
        (('    if settings.listen or kind == "engine":\n', "    if kind:\n"),),
        "cli/tests/test_roles.py::test_a_second_role_on_a_machine_gets_a_free_port_unless_told_where_to_listen",
    ),
)
