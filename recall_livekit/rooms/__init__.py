"""What LiveKit's server knows of rooms, and what can be asked of the agents in them."""
