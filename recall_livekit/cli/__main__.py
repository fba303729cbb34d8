"""``python -m recall_livekit.cli``."""

from . import main

main()
