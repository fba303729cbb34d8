"""The README's examples run, and its commands exist."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()
BLOCKS = re.findall(r"```python([^\n]*)\n(.*?)```", README, re.DOTALL)


def test_its_examples_run(tmp_path: Path) -> None:
    runnable = [code for options, code in BLOCKS if "notest" not in options]
    assert runnable
    for code in runnable:
        done = subprocess.run(
            [sys.executable, "-W", "error", "-c", code],
            capture_output=True,
            text=True,
            timeout=60,
            cwd=tmp_path,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        assert "12 call sites found." in done.stdout


def test_its_other_examples_are_python_that_names_what_exists() -> None:
    import recall_livekit

    for _, code in BLOCKS:
        for node in ast.walk(ast.parse(code)):
            if isinstance(node, ast.ImportFrom) and node.module == "recall_livekit":
                assert {alias.name for alias in node.names} <= set(recall_livekit.__all__)


def test_its_commands_are_targets_of_the_makefile() -> None:
    targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    named = set(re.findall(r"make ([a-z-]+)", README))
    assert {"demo", "test"} <= named <= set(targets)
