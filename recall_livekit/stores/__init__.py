"""Where records live: the contract (`base`) and the stores that keep it."""
