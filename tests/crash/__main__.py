"""``python -m tests.crash SCRIPT ARGUMENTS``: a nursery, which dies with whoever started it."""

import importlib
import sys

from .nursery import die_with_parent

if __name__ == "__main__":
    die_with_parent()
    importlib.import_module(f"tests.crash.{sys.argv[1]}").main(*sys.argv[2:])
