"""`serve` and `key`, and every command against a server instead of a directory."""

from __future__ import annotations

import builtins
import re
from pathlib import Path
from typing import Any

import pytest

from recall_livekit import InvalidSettings
from recall_livekit.cli.serving import listen_at, retained

from .conftest import Invoke
from .filled import OLD, TABLE
from .serving import Serving, made_key
from .terminal import piped
from .test_show import PAGE, without_times


def test_every_command_works_against_a_server(
    invoke: Invoke, own: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    local = invoke("calls", at=own).stdout
    monkeypatch.setenv("RECALL_API_KEY", made_key(own, "admin"))
    with Serving(own) as serving:
        monkeypatch.setenv("RECALL_URL", serving.url)
        assert sorted(invoke("calls").stdout.splitlines()) == sorted(local.splitlines())
        assert without_times(invoke("show", TABLE).stdout) == PAGE
        assert len(invoke("export", TABLE).stdout.splitlines()) == 15
        missing = invoke("fetch", TABLE, "0/0")
        assert (missing.code, "nothing is kept" in missing.stderr) == (1, True)
        assert invoke("show", "nobody").code == 1
        assert invoke("prune", "--older-than", "30d", "--yes").stderr == "1 of 1 call erased\n"
        assert invoke("erase", TABLE, "--yes").code == 0
        assert '"state":"erased"' in invoke("show", OLD, "--json").stdout
    ran = invoke("calls")
    assert ran.code == 3
    assert ran.stderr.startswith(f"recall-livekit: {serving.url}: ")


def test_what_a_key_may_not_is_refused(
    invoke: Invoke, own: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RECALL_API_KEY", made_key(own, "read"))
    with Serving(own) as serving:
        monkeypatch.setenv("RECALL_URL", serving.url)
        assert invoke("show", TABLE).code == 0
        ran = invoke("erase", TABLE, "--yes")
        assert ran.code == 1
        assert "role admin; this one's is read" in ran.stderr
        monkeypatch.delenv("RECALL_API_KEY")
        assert invoke("show", TABLE).code == 1


def test_a_server_that_is_told_to_leave_has_done_well(own: Path) -> None:
    serving = Serving(own, "--retain", "default=30d", "--retain", "trials=24h")
    assert serving.end() == 0


def test_others_need_a_key_first(own: Path) -> None:
    ran = piped("serve", "--store", f"sqlite:///{own}", "--listen", "0.0.0.0:0")
    assert ran.code == 2
    assert "this store has no key yet" in ran.stderr
    assert "Traceback" not in ran.stderr


@pytest.mark.parametrize("what", ["uvicorn", "starlette"])
def test_without_the_server_s_parts_it_says_what_to_install(
    invoke: Invoke, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    load = builtins.__import__

    def without(name: str, *args: Any) -> Any:
        if name.split(".")[0] == what or name.endswith("server") or "server." in name:
            raise ModuleNotFoundError(f"No module named {what!r}", name=what)
        return load(name, *args)

    monkeypatch.setattr(builtins, "__import__", without)
    for args in (("serve",), ("key", "list"), ("key", "create", "--name", "x")):
        store = f"sqlite:///{tmp_path}"
        ran = invoke(*args, "--store", store)
        assert ran.code == 1
        assert f"{what} is not installed" in ran.stderr
        assert 'pip install ".[server]"' in ran.stderr


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [
        ("127.0.0.1:8080", "127.0.0.1", 8080),
        (":80", "0.0.0.0", 80),
        ("recall.internal:0", "recall.internal", 0),
        ("[::1]:8080", "::1", 8080),
    ],
)
def test_where_to_listen(text: str, host: str, port: int) -> None:
    assert listen_at(text) == (host, port, None)


def test_a_unix_socket() -> None:
    assert listen_at("unix:/run/recall.sock")[2] == Path("/run/recall.sock")


@pytest.mark.parametrize("text", ["", "8080", "host:", "host:x", "host:70000", "::1:80", "unix:"])
def test_where_nothing_can_listen(text: str) -> None:
    with pytest.raises(InvalidSettings, match="write HOST:PORT"):
        listen_at(text)


def test_how_long_calls_are_kept() -> None:
    assert retained(["default=30d", "trials=24h"]) == {"default": 2592000.0, "trials": 86400.0}


@pytest.mark.parametrize("text", ["30d", "default", "default=", "=30d", "default=forever"])
def test_what_says_nothing_of_it(text: str) -> None:
    with pytest.raises(InvalidSettings, match="--retain"):
        retained([text])


# --- keys ---------------------------------------------------------------------------------------


def test_the_secret_is_alone_on_stdout_and_shown_once(invoke: Invoke, tmp_path: Path) -> None:
    store = ["--store", f"sqlite:///{tmp_path / 'records'}"]
    made = invoke("key", "create", "--name", "ops\x1b[2J", "--role", "admin", *store)
    assert made.code == 0
    assert re.fullmatch(r"recall_[0-9a-f]{16}_[A-Za-z0-9_-]{43}\.default\n", made.stdout)
    key_id, secret = made.stdout.split("_")[1], made.stdout.split("_", 2)[2].strip()
    listed = invoke("key", "list", *store).stdout
    assert secret not in listed + made.stderr
    assert listed.startswith(f"{key_id}  default           admin")
    assert listed.endswith("valid  ops\\e[2J\n")


def test_a_key_is_revoked(invoke: Invoke, tmp_path: Path) -> None:
    store = ["--store", f"sqlite:///{tmp_path / 'records'}"]
    key_id = invoke("key", "create", "--name", "x", *store).stdout.split("_")[1]
    assert invoke("key", "revoke", key_id, *store).code == 0
    assert "revoked today" in invoke("key", "list", *store).stdout
    assert '"revoked_at":null' not in invoke("key", "list", "--json", *store).stdout
    ran = invoke("key", "revoke", "nothing", *store)
    assert ran.code == 1
    assert "there is no key nothing" in ran.stderr


def test_looking_for_keys_makes_no_directory(invoke: Invoke, tmp_path: Path) -> None:
    store = ["--store", f"sqlite:///{tmp_path / 'records'}"]
    assert invoke("key", "list", *store).code == 1
    assert invoke("key", "revoke", "x", *store).code == 1
    assert list(tmp_path.iterdir()) == []


def test_a_namespace_that_cannot_be_is_refused(invoke: Invoke, tmp_path: Path) -> None:
    for namespace in ("recall-system", "Über"):
        args = ("key", "create", "--name", "x", "--namespace", namespace)
        assert invoke(*args, "--store", f"sqlite:///{tmp_path}").code == 2
