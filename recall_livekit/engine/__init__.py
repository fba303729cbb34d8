"""All the rules. It does I/O only through a store and a clock."""
