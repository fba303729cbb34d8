"""The parts of `call_recovery.py` and `remote_recovery.py`.

Read `worker.py` first: that is what an application writes. The screens, the strips and the command
serve `livekit_recovery.py` and `half_said.py` too.
"""
