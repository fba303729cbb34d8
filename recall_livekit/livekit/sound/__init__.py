"""What is heard, by the caller and by the agent."""
