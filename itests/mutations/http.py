"""What can be taken out of the HTTP servers: who is answered, what is read, and what the gateway says. See docs/defects.md."""

from __future__ import annotations

from typing import Final

from itests.mutations.mutation import Mutation

_HOSTS: Final = "common/tests/http/test_host_rules.py"
_SERVER: Final = "gateway/tests/test_server.py"
_TOKEN: Final = "gateway/tests/test_server_token.py"

HTTP_MUTATIONS: Final[tuple[Mutation, ...]] = (
    Mutation(
        "a wide bind answers any Host",
        "common",
        (
            (
                "        if name not in self.names and not _is_address(name):\n",
                "        if name not in self.names and not _is_address(name) and not self.wide:\n",
            ),
            (
                "        names = {LOCAL_NAME, ",
                '        self.wide = listens in ("0.0.0.0", "::")\n        names = {LOCAL_NAME, ',
            ),
        ),
        f"{_HOSTS}::test_any_other_name_is_refused_whatever_is_bound",
    ),
    Mutation(
        "reads of a foreign page are answered",
        "common",
        (
            (
                "        if origin is not None and origin.lower()",
                '        if origin is not None and method not in ("GET", "HEAD") and origin.lower()',
            ),
        ),
        f"{_SERVER}::test_what_is_refused",
    ),
    Mutation(
        "what carries no Origin is of no page",
        "common",
        (
            (
                "        if site is not None and site.lower()",
                "        if origin is not None and site is not None and site.lower()",
            ),
        ),
        f"{_HOSTS}::test_what_another_page_loads_is_refused",
    ),
    Mutation(
        "pages of metrics and administration look at no Host",
        "common",
        (("            self._hosts.check(request.method, request.headers)\n", ""),),
        "common/tests/http/test_http_page.py::test_pages_of_other_origins_and_names_get_no_answer",
    ),
    Mutation(
        "only what changes something needs the token",
        "gateway",
        (
            (
                "            if (request.match_info.route.name or ELSEWHERE) not in OPEN:\n",
                '            if request.method not in ("GET", "HEAD"):\n',
            ),
        ),
        f"{_TOKEN}::test_a_route_is_answered_to_who_shows_the_token_and_is_no_foreign_page",
    ),
    Mutation(
        "health tells everybody its reasons",
        "gateway",
        (('HealthAnswer("failing", reasons if call.admitted else [])', 'HealthAnswer("failing", reasons)'),),
        f"{_TOKEN}::test_the_reasons_of_ill_health_are_for_those_who_show_the_token",
    ),
    Mutation(
        "an unknown encoding is ignored",
        "gateway",
        (("    if name == IDENTITY:\n", "    if name == IDENTITY or name not in WINDOW_BITS:\n"),),
        f"{_SERVER}::test_what_is_refused",
    ),
    Mutation(
        "an encoded body counts as its encoded length",
        "gateway",
        (("        unknown = expected is None or decoder is not None\n", "        unknown = expected is None\n"),),
        "gateway/tests/calls/test_admission.py::test_an_encoded_body_counts_as_the_most_that_it_may_stand_for",
    ),
    Mutation(
        "what is no request is answered by the library",
        "common",
        (("        return _Server(made, self._refuse,", "        return made or _Server(made, self._refuse,"),),
        "common/tests/http/test_http_server.py::test_what_cannot_be_read_is_refused_in_the_shape_of_the_server",
    ),
    Mutation(
        "a silent HTTP connection stays",
        "common",
        (("call_later(server.first_head_s, self.force_close)", "call_later(server.first_head_s, self.received)"),),
        "common/tests/http/test_http_server.py::test_a_connection_that_brings_no_whole_head_in_time_is_ended",
    ),
    Mutation(
        "JSON nested too deeply is a fault of ours",
        "common",
        (("(msgspec.DecodeError, UnicodeDecodeError, RecursionError)", "(msgspec.DecodeError, UnicodeDecodeError)"),),
        "common/tests/http/test_http_page.py::test_bodies_and_numbers",
    ),
    Mutation(
        "a misspelt metadata file is made",
        "cli",
        (("*, create: bool = False, wait_s: float = 0.0", "*, create: bool = True, wait_s: float = 0.0"),),
        "cli/tests/facts/test_gateway_facts.py::test_a_store_that_is_no_clusters_is_named_before_anything_is_served",
    ),
    Mutation(
        "a read that timed out was perhaps applied",
        "gateway",
        (("error.definite or not changes)", "error.definite)"),),
        "gateway/tests/calls/test_http_errors.py::test_what_changes_nothing_was_certainly_not_applied",
    ),
    Mutation(
        "a variable of a path stands for what is a path by itself",
        "gateway",
        (("            path = pattern_of(route, routes)\n", "            path = route.path\n"),),
        f"{_SERVER}::test_the_methods_of_a_path_are_told",
    ),
    Mutation(
        "the first answer has no rates",
        "gateway",
        (("asyncio.gather(self._ask(0), self._ask(pause_s))", "asyncio.gather(self._ask(0))"),),
        "gateway/tests/calls/test_board.py::test_all_who_look_share_one_question",
    ),
    Mutation(
        "the status page keeps faults to itself",
        "cli",
        (("faults=[] if found.view is None else cluster_status.faults_of(found),", "faults=[],"),),
        "cli/tests/facts/test_gateway_facts.py::test_faults_are_those_of_boki_status",
    ),
)
