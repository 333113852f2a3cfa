"""What can be taken out of how servers bear strangers, silence and logs that cannot be written: see docs/defects.md."""

from __future__ import annotations

from typing import Final

from itests.mutations.patch import patches

HYGIENE_MUTATIONS: Final = patches(r"""
a stranger gets room for what it announces
common common/tests/net/test_frames.py::test_a_restricted_peer_gets_no_more_than_thrice_what_arrived
-                if not self._restricted:
+                if True:
                     wanted

strangers have the frames of guests
common common/tests/net/test_doorkeeper.py::test_a_large_frame_before_the_introduction_ends_the_connection_for_no_memory
-connection._parser.restrict(min(strangers.frame_bytes, frame_bytes_limit))
+pass

strangers may wait
common common/tests/net/test_doorkeeper.py::test_who_says_nothing_is_dropped_and_who_introduced_himself_stays
-            if end > now:
-                break
-            found.append(one)
+            break

strangers are as many as come
common common/tests/net/test_doorkeeper.py::test_one_stranger_too_many_takes_the_place_of_the_oldest
-return self.oldest if len(self._until) > self.allowed.connections else None
+return None

what strangers hold together is not bounded
common common/tests/net/test_doorkeeper.py::test_strangers_that_hold_much_together_are_dropped_and_others_still_come_in
-if self.buffered - held + size > self.allowed.buffered_bytes:
+if size > self.allowed.buffered_bytes:

what a server says does not keep a connection
common common/tests/net/test_doorkeeper.py::test_who_talks_or_is_talked_to_between_two_looks_stays
-            self.active = True
             self._transport.writelines(buffers)

a silent client does not say that it is there
common common/tests/net/test_messages.py::test_a_silent_client_says_that_it_is_still_there_in_a_way_all_versions_drop
-            if not self.connection.active:
+            if False:
                 self.connection.send(

a log that cannot be written raises
common common/tests/test_logs.py::test_lines_that_a_failing_stream_loses_are_counted_and_reported_not_raised
-        except (OSError, ValueError):  # a full disk, a reader that is gone, a stream that was closed
+        except LookupError:

standard error waits for its reader
common common/tests/runtime/test_error_stream.py::test_a_server_whose_errors_nobody_reads_goes_on_and_ends
-        self._own = _opened_anew(descriptor)
+        self._own = None
@@
-                if self._own is None and not self._room_within(0):
-                    return data

what is held is not written at the end
common common/tests/runtime/test_error_stream.py::test_the_end_of_a_server_waits_for_a_reader_that_comes_late
-    atexit.register(stream.finish)

a fence makes a ledger of any number
bookie bookie/tests/storage/test_storage.py::test_a_fence_of_what_no_ledger_can_be_called_is_refused_and_makes_none
-            if ledger_id < 0:
+            if False:
                 return V2Status.BAD_REQUEST

a report names any number of entries
metalog metalog/tests/entries/test_progress.py::test_impossible_reports_are_refused
-        if impossible or entries_end > limits.POSITION_MAX:
+        if impossible:

each failed accept is a line
common common/tests/runtime/test_loop_faults.py::test_a_thousand_failed_accepts_are_one_line_with_what_to_do
-        self._accept_reported_at = now

answers of strangers are taken
common common/tests/net/test_messages.py::test_garbage_ends_the_connection_without_an_answer
-                if self.connection.is_stranger and number != _NOBODYS_REQUEST:
+                if False:

facts of an error take the names of its arguments
common common/tests/test_errors.py::test_an_error_crosses_the_wire_with_facts_of_any_name
-    def __init__(self, message: str, /, **facts: Any) -> None:
+    def __init__(self, message: str, **facts: Any) -> None:

the thread of a watch keeps the watch
common common/tests/runtime/test_code_watch.py::test_the_thread_of_a_watch_that_was_dropped_ends
-            watching = (weakref.ref(self), self._closed, self.after_s / LOOKS)
+            watching = (lambda: self, self._closed, self.after_s / LOOKS)

a server that closes leaves open what it has just accepted
common common/tests/net/test_connection.py::test_who_comes_while_a_server_closes_is_closed_too
-        self._doorkeeper.close()
-        try:
-            await self._stop_accepting()
-        finally:
+        try:
+            pass
+        finally:

a server whose close is cancelled listens on
common common/tests/net/test_connection.py::test_a_server_whose_close_is_cancelled_listens_no_more
-        try:
-            await self._stop_accepting()
-        finally:
+        await self._stop_accepting()
+        if True:

a connection that is lost during a question proves that the sequencer is gone
metalog metalog/tests/sequencer/test_sequencer_watch.py::test_a_connection_that_is_lost_during_a_question_is_no_proof
-                    if not answered:
-                        raise
-                    return True
+                    raise
""")
