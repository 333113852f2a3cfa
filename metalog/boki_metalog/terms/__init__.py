"""Terms of a log and its place in the metadata.

`term_record` and `view` are what the metadata hold (`metadata_tree`, `view_feed`), `term_plan` and `term_change` begin a term, `term_end`
ends one, `term_order` and `slot_rules` say which books a log has when.
"""
