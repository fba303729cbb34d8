"""Everything that touches livekit.agents."""
