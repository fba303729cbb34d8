"""Everything that touches livekit.agents: a session and its agents.

``speech`` is what each side really said, ``seeds`` what a model is told, ``tools`` the tool calls,
``sound`` what is heard, ``succession`` who follows whom, ``worker`` a worker's main process.
"""
