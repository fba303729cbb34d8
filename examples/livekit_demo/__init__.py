"""The parts of `livekit_recovery.py`.

`worker.py` is what an application writes (and `../livekit_worker.py` the one to copy);
`espeak.py`, `voice.py` and `ears.py` stand in for a provider of speech; `story.py` is what happens.
"""
