"""Many workers on one call, on a bad day, on a clock that costs nothing; all from one seed.

The world: `virtual` is the event loop, `process` a worker's process, `buckets` and `table` the two
kinds of data, `disk` a machine's spool, `worker`, `outputs`, `eager` and `hands` those who write to
them, `odds` how likely everything is, `world` who is there, `simulation` the course of a day.

The judges, each told of every write by `judge`: `ledger` reads the chain by itself, `erased` looks
for what must be gone, `fairness` asks who took a call from whom, `audit` holds the product's own
reading against the ledger, by way of `still`, `spools` asks what became of what was spooled.

`mutants` and `spool_mutants` break the rules one by one, and `tally` says what came of it all.
"""
