"""What can be taken out of how numbers are filled, voided and told apart. See docs/defects.md."""

from __future__ import annotations

from typing import Final

from itests.mutations.patch import patches

NUMBERS_MUTATIONS: Final = patches(r"""
holes are filled with records that must fail
sdk logbook/tests/sdk/test_voids.py::test_holes_are_filled_with_voids_in_frames_of_a_size
-special.flags | RUN_VOID | RUN_RESENT
+special.flags | RUN_RESENT

the fillers of all holes go in one frame
sdk logbook/tests/sdk/test_voids.py::test_holes_are_filled_with_voids_in_frames_of_a_size
-holes = min(low - next_hole, (FRAME_TARGET_BYTES - size) // VOID_BYTES + 1) if next_hole else 0
+holes = low - next_hole if next_hole else 0

a void is compared with nothing
logbook logbook/tests/engine/writers/test_writers.py::test_a_void_is_compared_by_the_checksum_of_the_record_it_is_of
-sent = array("I", map(compared_to, kept, sent))
+sent = kept

settling voids what is behind
sdk logbook/tests/sdk/test_in_doubt.py::test_settling_voids_up_to_its_number_and_nothing_behind_it
-        self.voided_to = number
+        self.voided_to = 1 << 62

what is partly in the log is called definite
sdk logbook/tests/sdk/test_append_many.py::test_what_is_not_a_prefix_is_not_called_definite
-    elif behind and error.definite:
+    elif behind and not error.definite:

a repeat looks for its number in its own session
sdk logbook/tests/sdk/test_writer.py::test_a_repeat_of_a_number_that_is_under_way_waits_for_it_in_any_session
-        return self._undecided.get(numbers.key, numbers)
+        return numbers

a named writer takes back what others are behind
sdk logbook/tests/sdk/test_numbers.py::test_of_a_named_writer_only_the_newest_can_be_taken_back
-or (self.named and item is not self.newest)
+or False

tag names do not count toward a frame
sdk logbook/tests/sdk/test_sizes.py::test_frames_of_any_appends_are_taken_by_engines
-ROW_BYTES + len(packed) + len(packed_names)
+ROW_BYTES + len(packed)

conditions do not count toward a frame
sdk logbook/tests/sdk/test_sizes.py::test_frames_of_any_appends_are_taken_by_engines
-size if expectations is NO_EXPECTATIONS else size + expectations.size
+size

answers of a turn are one message
common common/tests/engine/test_engine_protocol.py::test_any_number_of_answers_leaves_in_messages_of_a_size
-        if count * _ROW.size + len(pairs) * PAIR.size > ANSWERS_BYTES:
+        if count < 0:

a repeat does not keep its own time
sdk logbook/tests/sdk/test_writer.py::test_a_timeout_is_kept_by_all_that_a_call_waits_for
-            async with asyncio.timeout_at(within.deadline):
+            async with asyncio.timeout_at(within.deadline + 5.0):
                 seqnum = await pending

asking for the last number takes as long as it takes
sdk logbook/tests/sdk/test_writer.py::test_a_timeout_is_kept_by_all_that_a_call_waits_for
-            await self.refresh(within.timeout_s)
+            await self.refresh(None)
""")
