"""What must hold for every chain, briefing, call id and value, not only for those we thought of.

`strategies` makes words, records and entries, `scenes` has the real engine write whole chains of
them. The examples are the same at every run: a failure here is never luck.
"""
