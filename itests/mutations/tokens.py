"""What can be taken out of who may speak to a cluster, and of who may say what: see docs/defects.md for what each is about."""

from __future__ import annotations

from typing import Final

from itests.mutations.mutation import Mutation

_ENGINE: Final = "logbook/tests/engine/test_engine_token.py"
_SEQUENCER: Final = "metalog/tests/sequencer/test_sequencer_token.py"
_GATE: Final = "bookie/tests/serve/test_auth_gate.py"

TOKEN_MUTATIONS: Final[tuple[Mutation, ...]] = (
    Mutation(
        "a token is compared only when one is shown",
        "common",
        (
            (
                "        if not self._tokens:\n            return\n        if",
                "        if not self._tokens or not shown:\n            return\n        if",
            ),
        ),
        "common/tests/test_cluster_token.py::test_who_shows_nothing_is_told_that_a_token_is_asked_for_and_how_to_show_it",
    ),
    Mutation(
        "only the first of two tokens is valid",
        "common",
        (
            (
                "        for token in self._tokens:\n            found |=",
                "        for token in self._tokens[:1]:\n            found |=",
            ),
        ),
        "common/tests/test_cluster_token.py::test_of_two_lines_both_are_accepted_and_the_first_is_shown",
    ),
    Mutation(
        "a token file that others may read is taken",
        "common",
        (("return bool(mode & (0o077 if mine else 0o007))", "return False"),),
        "common/tests/runtime/test_token_file.py::test_a_file_that_others_may_use_is_refused_with_its_mode_and_the_remedy",
    ),
    Mutation(
        "an engine hears who shows no token",
        "logbook",
        (('        self._token.admit(hello.auth, "this engine")\n', ""),),
        f"{_ENGINE}::test_hello_is_taken_only_with_the_token_whatever_role_it_names",
    ),
    Mutation(
        "an SDK is taken for an engine",
        "logbook",
        (
            (
                "        if not self._is_engine:\n            raise NotPermitted(",
                "        if False:\n            raise NotPermitted(",
            ),
        ),
        f"{_ENGINE}::test_headers_and_forwarded_calls_are_for_engines",
    ),
    Mutation(
        "a client goes on with a token that nobody takes",
        "sdk",
        ((' if self._denials >= engines else ""', ' if self._denials < 0 else ""'),),
        f"{_ENGINE}::test_a_client_whose_token_is_valid_no_more_ends_with_the_reason",
    ),
    Mutation(
        "a sequencer hears who shows no token",
        "metalog",
        (('            token.admit(hello.auth, "this sequencer")\n', ""),),
        f"{_SEQUENCER}::test_who_does_not_show_the_token_is_told_so_and_the_connection_ends",
    ),
    Mutation(
        "roles are not looked at",
        "metalog",
        (
            (
                "        self.shards: Final = self.role in (ENGINE, OF_EARLIER_VERSION)",
                "        self.shards: Final = True",
            ),
        ),
        f"{_SEQUENCER}::test_only_engines_have_shards",
    ),
    Mutation(
        "an engine may declare entries lost",
        "metalog",
        (("    Lost: frozenset((ADMINISTRATOR,)),", "    Lost: frozenset((ENGINE, ADMINISTRATOR)),"),),
        f"{_SEQUENCER}::test_a_command_of_another_role_is_not_ordered",
    ),
    Mutation(
        "a connection reports shards of others",
        "metalog",
        (("                if shard not in own:\n                    self._owners.check_own(peer, shard)\n", ""),),
        f"{_SEQUENCER}::test_a_connection_speaks_for_its_own_shards_only",
    ),
    Mutation(
        "who opens a shard again has it",
        "metalog",
        (("        self._owners.check_speaks_for(peer, request.incarnation)\n", ""),),
        f"{_SEQUENCER}::test_shards_of_an_engine_in_its_grace_are_nobodys_prey",
    ),
    Mutation(
        "a bookie serves before the token was shown",
        "bookie",
        (
            (
                "if token.asks else server.connected(connection)",
                "if False else server.connected(connection)",
            ),
        ),
        f"{_GATE}::test_a_v2_request_without_the_token_is_unauthorized_and_nothing_is_done",
    ),
    Mutation(
        "a bookie that asks for no token is used",
        "ledger",
        (
            (
                "                if admitted != auth.ADMITTED and not settings.bookies_without_token:",
                "                if False:",
            ),
        ),
        "ledger/tests/bookies/test_introduction.py::test_who_is_let_in_writes_and_reads_and_who_is_not_is_told_at_once",
    ),
    Mutation(
        "a page shows itself without the token",
        "common",
        (
            (
                '            self._token.admit(shown_in(request.headers.get("Authorization")), f"this {self._what}")\n',
                "",
            ),
        ),
        "common/tests/http/test_http_page.py::test_where_there_is_a_token_every_path_asks_for_it",
    ),
)
