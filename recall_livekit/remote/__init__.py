"""The client of a Recall server: the transport of a live call, over HTTP."""
