"""Travel reservation: hotel search, recommendations, logins, and trips whose room and seat are booked together or not at all.

    python -m examples.hotel

Runs for about half a minute: it starts a cluster of processes and two services, sends requests, kills a process with kill -9 every
second, and prints requests with their latencies, the kills, and whether each of four promises holds. Exit code 1 if one does not.
`--help` lists the options; `--tables` keeps the rows in Apache Cassandra.

The application is that of the evaluation of Boki (SOSP '21, section 7.2), after Beldi and DeathStarBench, with their data and their mix
of requests. Read `app` (the workflows), then `rules` (distances, rates and recommendations), `data_set` (initial rows), `application`
(random requests; the application as one value) and `checks` (the promises). `examples.apps` has what is shared with `examples.movie`.
"""
