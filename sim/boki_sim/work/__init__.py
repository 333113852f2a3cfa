"""What simulated clients do, and their notes of it.

`habits` draws a client, `workload` makes its calls (`workload_appends`, `workload_reads`, `workload_numbers`), `notebook` and
`operations` keep what was asked and answered, `late_hour` what is asked at the end.
"""
