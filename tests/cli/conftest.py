from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner

from recall_livekit.cli.app import app

from .filled import fill
from .terminal import Ran

Invoke = Callable[..., Ran]


@pytest.fixture(autouse=True)
def _nothing_set(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No variable of the machine's, and a working directory without records."""
    for name in (
        "RECALL_URL",
        "RECALL_API_KEY",
        "RECALL_API_KEY_FILE",
        "RECALL_STORE",
        "RECALL_SPOOL",
        "LIVEKIT_URL",
        "LIVEKIT_API_KEY",
        "LIVEKIT_API_SECRET",
    ):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TZ", "UTC")
    monkeypatch.chdir(tmp_path)


@pytest.fixture(scope="session")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with calls. Only for tests that read."""
    directory = tmp_path_factory.mktemp("filled") / "records"
    fill(directory)
    return directory


@pytest.fixture
def own(filled: Path, tmp_path: Path) -> Path:
    """A copy of it that a test may change."""
    return Path(shutil.copytree(filled, tmp_path / "records"))


@pytest.fixture
def invoke() -> Invoke:
    """Run a command in this process."""

    def run(*args: str, at: Path | None = None) -> Ran:
        where = ["--url", f"sqlite:///{at}"] if at is not None else []
        split = args.index("--") if "--" in args else len(args)
        result = CliRunner().invoke(app, [*args[:split], *where, *args[split:]])
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        return Ran(result.exit_code, result.stdout, result.stderr)

    return run
