"""The tools of a session: recorded, refused where they must be, and those for the model."""
