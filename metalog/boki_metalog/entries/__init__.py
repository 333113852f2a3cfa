"""What stands in a metalog, and what may be sent to a sequencer.

`metalog_entry` is the format, `progress` what entries add up to, `loss_evidence` why something was declared lost;
`sequencer_protocol` and `permissions` are the messages and who may send them.
"""
