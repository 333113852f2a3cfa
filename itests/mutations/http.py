"""What can be taken out of the HTTP servers: who is answered, what is read, and what the gateway says. See docs/defects.md."""

from __future__ import annotations

from typing import Final

from itests.mutations.patch import patches

HTTP_MUTATIONS: Final = patches(r"""
a wide bind answers any Host
common common/tests/http/test_host_rules.py::test_any_other_name_is_refused_whatever_is_bound
-        if name not in self.names and ip_of(name) is None:
+        if name not in self.names and ip_of(name) is None and not self.wide:
@@
+        self.wide = listens in ("0.0.0.0", "::")
         names = {LOCAL_NAME, *(name.lower().removesuffix(".") for name in (listens, *allowed))}

reads of a foreign page are answered
common gateway/tests/test_server.py::test_what_is_refused
-        if origin is not None and origin.lower()
+        if origin is not None and method not in ("GET", "HEAD") and origin.lower()

what carries no Origin is of no page
common common/tests/http/test_host_rules.py::test_what_another_page_loads_is_refused
-        if site is not None and site.lower()
+        if origin is not None and site is not None and site.lower()

pages of metrics and administration look at no Host
common common/tests/http/test_http_page.py::test_pages_of_other_origins_and_names_get_no_answer
-            self._hosts.check(request.method, request.headers)

only what changes something needs the token
gateway gateway/tests/test_server_token.py::test_a_route_is_answered_to_who_shows_the_token_and_is_no_foreign_page
-            if (request.match_info.route.name or ELSEWHERE) not in OPEN:
+            if request.method not in ("GET", "HEAD"):

health shows everybody its reasons
gateway gateway/tests/test_server_token.py::test_the_reasons_of_ill_health_are_for_those_who_show_the_token
-HealthAnswer("failing", reasons if call.admitted else [])
+HealthAnswer("failing", reasons)

an unknown encoding is ignored
gateway gateway/tests/test_server.py::test_what_is_refused
-    if name == IDENTITY:
+    if name == IDENTITY or name not in WINDOW_BITS:

an encoded body counts as its encoded length
gateway gateway/tests/calls/test_admission.py::test_an_encoded_body_counts_as_the_most_that_it_may_stand_for
-        unknown = expected is None or decoder is not None
+        unknown = expected is None

what is no request is answered by the library
common common/tests/http/test_http_server.py::test_what_cannot_be_read_is_refused_in_the_shape_of_the_server
-        return _Server(made, self._refuse,
+        return made or _Server(made, self._refuse,

a silent HTTP connection stays
common common/tests/http/test_http_server.py::test_a_connection_that_brings_no_whole_head_in_time_is_ended
-call_later(self.server.first_head_s, self.force_close)
+call_later(self.server.first_head_s, lambda: None)

JSON nested too deeply is a fault of ours
common common/tests/http/test_http_page.py::test_bodies_and_numbers
-(msgspec.DecodeError, UnicodeDecodeError, RecursionError)
+(msgspec.DecodeError, UnicodeDecodeError)

a misspelt metadata file is made
cli cli/tests/facts/test_gateway_facts.py::test_a_store_that_is_no_clusters_is_named_before_anything_is_served
-*, create: bool = False, wait_s: float = 0.0
+*, create: bool = True, wait_s: float = 0.0

a read that timed out was perhaps applied
gateway gateway/tests/calls/test_http_errors.py::test_what_changes_nothing_was_certainly_not_applied
-error.definite or not changes)
+error.definite)

a variable of a path stands for what is a path by itself
gateway gateway/tests/test_server.py::test_the_methods_of_a_path_are_named
-            path = pattern_of(route, routes)
+            path = route.path

the first answer has no rates
gateway gateway/tests/calls/test_board.py::test_all_who_look_share_one_question
-asyncio.gather(self._ask(0), self._ask(pause_s))
+asyncio.gather(self._ask(0))

the status page keeps faults to itself
cli cli/tests/facts/test_gateway_facts.py::test_faults_are_those_of_boki_status
-faults=[] if found.view is None else cluster_status.faults_of(found),
+faults=[],

HTTP strangers keep guests out
common common/tests/http/test_http_server.py::test_strangers_never_keep_a_guest_out
-            oldest = next(iter(self.strangers), connection)
+            oldest = connection

an HTTP stranger is answered again and again
common common/tests/http/test_http_server.py::test_a_stranger_gets_one_answer_and_a_guest_many
-        if connection in self.strangers:
+        if False:

a stream begins before its start is looked at
gateway gateway/tests/calls/test_numbers.py::test_a_stream_of_events_is_refused_before_it_begins
-        pages = book.read(asked.tag, start=start, follow=True, consistency=asked.consistency)
@@
-        stream = _Stream(call, response, book, pages)
+        stream = _Stream(call, response, book, book.read(asked.tag, start=start, follow=True, consistency=asked.consistency))
@@
- or int(last) > SEQNUM_MAX
+
""")
