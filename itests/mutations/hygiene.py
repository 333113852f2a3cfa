"""What can be taken out of how servers bear strangers, silence and logs that cannot be written: see docs/defects.md."""

from __future__ import annotations

from typing import Final

from itests.mutations.mutation import Mutation

_FRAMES: Final = "common/tests/net/test_frames.py"
_DOOR: Final = "common/tests/net/test_doorkeeper.py"
_ERRORS: Final = "common/tests/runtime/test_error_stream.py"

HYGIENE_MUTATIONS: Final[tuple[Mutation, ...]] = (
    Mutation(
        "a stranger gets room for what it announces",
        "common",
        (
            (
                "                if not self._restricted:\n                    wanted",
                "                if True:\n                    wanted",
            ),
        ),
        f"{_FRAMES}::test_a_restricted_peer_gets_no_more_than_thrice_what_arrived",
    ),
    Mutation(
        "strangers have the frames of guests",
        "common",
        (("connection._parser.restrict(min(strangers.frame_bytes, frame_bytes_limit))", "pass"),),
        f"{_DOOR}::test_a_large_frame_before_the_introduction_ends_the_connection_for_no_memory",
    ),
    Mutation(
        "strangers may wait",
        "common",
        (("            if end > now:\n                break\n            found.append(one)\n", "            break\n"),),
        f"{_DOOR}::test_who_says_nothing_is_dropped_and_who_introduced_himself_stays",
    ),
    Mutation(
        "strangers are as many as come",
        "common",
        (("return self.oldest if len(self._until) > self.allowed.connections else None", "return None"),),
        f"{_DOOR}::test_one_stranger_too_many_takes_the_place_of_the_oldest",
    ),
    Mutation(
        "what strangers hold together is not bounded",
        "common",
        (("if self.buffered - held + size > self.allowed.buffered_bytes:", "if size > self.allowed.buffered_bytes:"),),
        f"{_DOOR}::test_strangers_that_hold_much_together_are_dropped_and_others_still_come_in",
    ),
    Mutation(
        "what a server says does not keep a connection",
        "common",
        (
            (
                "            self.active = True\n            self._transport.writelines(buffers)",
                "            self._transport.writelines(buffers)",
            ),
        ),
        f"{_DOOR}::test_who_talks_or_is_talked_to_between_two_looks_stays",
    ),
    Mutation(
        "a silent client does not say that it is there",
        "common",
        (
            (
                "            if not self.connection.active:\n                self.connection.send(",
                "            if False:\n                self.connection.send(",
            ),
        ),
        "common/tests/net/test_messages.py::test_a_silent_client_says_that_it_is_still_there_in_a_way_all_versions_drop",
    ),
    Mutation(
        "a log that cannot be written raises",
        "common",
        (
            (
                "        except (OSError, ValueError):  # a full disk, a reader that is gone, a stream that was closed\n",
                "        except LookupError:\n",
            ),
        ),
        "common/tests/test_logs.py::test_lines_that_a_failing_stream_loses_are_counted_and_told_not_raised",
    ),
    Mutation(
        "standard error waits for its reader",
        "common",
        (
            ("        self._own = _opened_anew(descriptor)\n", "        self._own = None\n"),
            (
                "                if self._own is None and not self._room_within(0):\n                    return data\n",
                "",
            ),
        ),
        f"{_ERRORS}::test_a_server_whose_errors_nobody_reads_goes_on_and_ends",
    ),
    Mutation(
        "what is held is not written at the end",
        "common",
        (("    atexit.register(stream.finish)\n", ""),),
        f"{_ERRORS}::test_the_end_of_a_server_waits_for_a_reader_that_comes_late",
    ),
    Mutation(
        "a fence makes a ledger of any number",
        "bookie",
        (
            (
                "            if ledger_id < 0:\n                return V2Status.BAD_REQUEST",
                "            if False:\n                return V2Status.BAD_REQUEST",
            ),
        ),
        "bookie/tests/storage/test_storage.py::test_a_fence_of_what_no_ledger_can_be_called_is_refused_and_makes_none",
    ),
    Mutation(
        "a report names any number of entries",
        "metalog",
        (("        if impossible or entries_end > limits.POSITION_MAX:", "        if impossible:"),),
        "metalog/tests/entries/test_progress.py::test_impossible_reports_are_refused",
    ),
    Mutation(
        "each failed accept is a line",
        "common",
        (("        self._accept_reported_at = now\n", ""),),
        "common/tests/runtime/test_loop_faults.py::test_a_thousand_failed_accepts_are_one_line_with_what_to_do",
    ),
)
