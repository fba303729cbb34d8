"""The real thing: a livekit-server on loopback, a real worker, and a caller that listens."""
