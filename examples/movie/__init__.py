"""Movie reviews: a workflow composes a review and stores it in three rows and the movie's rating, all of them or none.

    python -m examples.movie

Runs for about half a minute: it starts a cluster of processes and two services, sends requests, kills a process with kill -9 every
second, and prints requests with their latencies, the kills, and whether each of three promises holds. Exit code 1 if one does not.
`--help` lists the options; `--tables` keeps the rows in Apache Cassandra.

The application is that of the evaluation of Boki (SOSP '21, section 7.2), after Beldi and DeathStarBench: 1,000 users, 1,000 movies, and
no requests but new reviews. Read `app` (the workflow), then `application` (rows, random requests; the application as one value) and
`checks` (the promises). `examples.apps` has what is shared with `examples.hotel`.
"""
