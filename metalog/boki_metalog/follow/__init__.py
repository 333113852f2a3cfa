"""Following a log: all entries of all terms, in order.

`follower` reads the metalog (`metalog_reader`) and receives the newest from its sequencer (`follower_session`, `sequencer_link`,
`sequencer_member`); `log_followers` has one for each log, `term_history` knows the terms before.
"""
