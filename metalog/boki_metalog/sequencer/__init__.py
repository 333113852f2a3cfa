"""The sequencer of a term.

`sequencer` takes a term over or stands by (`standby`), `term_server` orders what engines report, `subscribers` get it pushed,
`term_rolling` ends a term in time, `spare_offer` has the next metalog ledger ready.
"""
