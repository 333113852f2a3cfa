"""What simulated clients do, and their notes of it.

`call_mix` draws a client, `workload` makes its calls (`workload_appends`, `workload_reads`, `workload_numbers`), `recorder` and
`operations` keep what was asked and answered, `late_writers` what is asked at the end.
"""
