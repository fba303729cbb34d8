"""The package as its users meet it: names, errors, what an import costs."""

from __future__ import annotations

import dataclasses
import inspect
import json
import subprocess
import sys

import pytest

import recall_livekit
from recall_livekit import InvalidSettings, Recall, Settings, errors

LAZY = ("apsw", "httpx2", "tiktoken", "livekit.agents", "starlette", "asyncpg", "obstore")


def run(script: str) -> str:
    command = [sys.executable, "-c", script]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout


def test_the_public_names_are_sorted_exist_and_are_documented() -> None:
    assert recall_livekit.__all__ == sorted(recall_livekit.__all__)
    for name in recall_livekit.__all__:
        value = getattr(recall_livekit, name)
        assert inspect.getdoc(value), name


def test_importing_it_imports_no_driver_and_no_server() -> None:
    script = (
        "import sys, json, recall_livekit\n"
        "from recall_livekit import Recall, Call, Settings\n"
        "Recall.open('sqlite:////tmp/never-made')\n"
        f"print(json.dumps([n for n in {LAZY!r} if n in sys.modules]))"
    )
    assert json.loads(run(script)) == []


def test_the_error_tree_in_the_docstring_is_complete() -> None:
    drawn = errors.__doc__ or ""
    names = [
        n for n, v in vars(errors).items() if inspect.isclass(v) and v.__module__ == errors.__name__
    ]
    assert sorted(names) == sorted(errors.__all__)
    for name in names:
        assert f" {name}" in drawn, name


@pytest.mark.parametrize("field", [field.name for field in dataclasses.fields(Settings)])
def test_a_setting_out_of_its_range_is_refused_by_name(field: str) -> None:
    with pytest.raises(InvalidSettings, match=field):
        Settings(**{field: -1})


@pytest.mark.parametrize("ttl", [1.9, 3601.0])
def test_a_ttl_is_from_two_seconds_to_an_hour(ttl: float) -> None:
    with pytest.raises(InvalidSettings, match="lease_ttl"):
        Settings(lease_ttl=ttl)


@pytest.mark.parametrize("url", ["mysql://x", "sqlite://", "sqlite:///", "nonsense"])
def test_an_address_that_names_no_store_says_what_to_write(url: str) -> None:
    with pytest.raises(InvalidSettings, match="sqlite:///"):
        Recall.open(url)


def test_the_address_comes_from_the_environment(
    monkeypatch: pytest.MonkeyPatch, tmp_path: object
) -> None:
    monkeypatch.setenv("RECALL_URL", "nonsense")
    with pytest.raises(InvalidSettings):
        Recall.open()
