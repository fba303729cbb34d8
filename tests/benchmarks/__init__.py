"""How long things take, against the floor of the same work in the same run."""
