"""Travel reservation: hotels near a place, recommendations, logins, and trips of a hotel and a flight that are booked whole or not at all.

    python -m examples.hotel                     # a cluster of processes, services, kill -9, a report: about half a minute

The application of the evaluation of Boki (SOSP '21, section 7.2), after Beldi and DeathStarBench: their data, their mix of requests.

- `data_set` what is there · `rules` what is near, what is cheap · `app` the workflows · `mix` who asks what · `checks` what has to hold
"""
