"""Who follows whom: standbys, handovers, and the questions of other agents."""
