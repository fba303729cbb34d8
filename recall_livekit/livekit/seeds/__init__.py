"""How a model is told of a call that goes on, whatever its kind."""
