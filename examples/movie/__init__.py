"""Reviews of movies: a review is composed of what several services say, and is then in three places, or in none.

    python -m examples.movie                     # a cluster of processes, services, kill -9, a report: about half a minute

The application of the evaluation of Boki (SOSP '21, section 7.2), after Beldi and DeathStarBench: 1,000 users, 1,000 titles, and
nothing but reviews that are composed.

- `data_set` what is there · `app` the workflows · `mix` who asks what · `checks` what has to hold
"""
