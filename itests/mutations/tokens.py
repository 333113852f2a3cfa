"""What can be taken out of who may speak to a cluster, and of who may say what: see docs/defects.md for what each is about."""

from __future__ import annotations

from typing import Final

from itests.mutations.patch import patches

TOKEN_MUTATIONS: Final = patches(r"""
a token is compared only when one is shown
common common/tests/test_cluster_token.py::test_without_a_token_the_error_says_that_one_is_needed_and_how_to_show_it
-        if not self._tokens:
+        if not self._tokens or not shown:
             return
         if

only the first of two tokens is valid
common common/tests/test_cluster_token.py::test_of_two_lines_both_are_accepted_and_the_first_is_shown
-        for token in self._tokens:
+        for token in self._tokens[:1]:
             found |=

a token file that others may read is taken
common common/tests/runtime/test_token_file.py::test_a_file_that_others_may_use_is_refused_with_its_mode_and_the_remedy
-return bool(mode & (0o077 if mine else 0o007))
+return False

an engine answers who has no token
logbook logbook/tests/engine/test_engine_token.py::test_hello_is_taken_only_with_the_token_whatever_role_it_names
-        self._token.admit(hello.auth, "this engine")

an SDK is taken for an engine
logbook logbook/tests/engine/test_engine_token.py::test_headers_and_forwarded_calls_are_for_engines
-    if role != wire.ROLE_ENGINE:
+    if False:
         raise NotPermitted(

a client goes on with a token that nobody takes
sdk logbook/tests/engine/test_engine_token.py::test_a_client_whose_token_is_valid_no_more_ends_with_the_reason
- if self._denials >= engines else ""
+ if self._denials < 0 else ""

a sequencer answers who has no token
metalog metalog/tests/sequencer/test_sequencer_token.py::test_who_does_not_show_the_token_gets_an_error_and_the_connection_ends
-            token.admit(hello.auth, "this sequencer")

roles are not looked at
metalog metalog/tests/entries/test_permissions.py::test_a_sequencer_takes_from_each_role_what_it_may_send_and_nothing_else
-        self.shards: Final = self.role in (ENGINE, OF_EARLIER_VERSION)
+        self.shards: Final = True

an engine may declare entries lost
metalog metalog/tests/entries/test_permissions.py::test_a_sequencer_takes_from_each_role_what_it_may_send_and_nothing_else
-    Lost: frozenset((ADMINISTRATOR,)),
+    Lost: frozenset((ENGINE, ADMINISTRATOR)),

a connection reports shards of others
metalog metalog/tests/sequencer/test_sequencer_token.py::test_a_connection_speaks_for_its_own_shards_only
-                if shard not in own:
-                    self._owners.check_own(peer, shard)

who opens a shard again has it
metalog metalog/tests/sequencer/test_sequencer_token.py::test_shards_of_an_engine_in_its_grace_are_nobodys_prey
-        self._owners.check_speaks_for(peer, request.incarnation)

a bookie serves before the token was shown
bookie bookie/tests/serve/test_auth_gate.py::test_a_v2_request_without_the_token_is_unauthorized_and_nothing_is_done
-if token.asks else server.connected(connection)
+if False else server.connected(connection)

a bookie that asks for no token is used
ledger ledger/tests/bookies/test_introduction.py::test_who_is_admitted_writes_and_reads_and_who_is_not_is_refused_at_once
-                if admitted != auth.ADMITTED and not settings.bookies_without_token:
+                if False:

a page shows itself without the token
common common/tests/http/test_http_page.py::test_where_there_is_a_token_every_path_asks_for_it
-            self._token.admit(shown_in(request.headers.get("Authorization")), f"this {self._what}")
""")
