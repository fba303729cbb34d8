"""The parts of `half_said.py`. Read `agent.py` first: that is what an application writes."""
