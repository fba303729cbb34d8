"""`doctor`: each thing that is wrong is said, with what to do about it."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, HTTPServer
from importlib import metadata
from pathlib import Path
from typing import Any

import apsw
import pytest

from recall_livekit.cli import checks_directory
from recall_livekit.cli.checks_clock import clock_finding
from recall_livekit.cli.findings import Finding, warn

from .conftest import Invoke
from .filled import ODD
from .serving import Serving, made_key
from .terminal import at, shown_at_a_terminal


def findings(invoke: Invoke, *args: str, at: Path | None = None) -> dict[str, Finding]:
    ran = invoke("doctor", "--json", *args, at=at)
    found = [Finding.model_validate_json(line) for line in ran.stdout.splitlines()]
    assert ran.code == (1 if any(one.level == "fail" for one in found) else 0)
    assert all(one.remedy for one in found if one.level != "ok")
    return {one.what: one for one in found}


def levels(found: dict[str, Finding]) -> dict[str, str]:
    return {what: one.level for what, one in found.items()}


# --- a directory --------------------------------------------------------------------------------


def test_a_healthy_directory(invoke: Invoke, filled: Path) -> None:
    found = findings(invoke, at=filled)
    assert list(found) == [
        "recall-livekit", "python", "livekit-agents", "SQLite", "open files", "RECALL_URL",
        "directory", "disk", "space", "writing", "locks", "hard links", "spool",
    ]  # fmt: skip
    assert {found[what].level for what in ("SQLite", "writing", "locks", "hard links")} == {"ok"}
    assert found["directory"].says == f"{filled}, {4 + len(ODD)} files of calls and their standbys"
    assert not list(filled.glob(".recall-doctor-*"))


def test_a_person_reads_a_line_a_check(filled: Path) -> None:
    shown, code = shown_at_a_terminal(["doctor", *at(filled)])
    assert code == 0
    assert "ok    locks               a lock is one process's\n" in shown


def test_one_that_is_not_there_yet_is_not_made(invoke: Invoke, tmp_path: Path) -> None:
    found = findings(invoke, at=tmp_path / "later" / "here")
    assert "is not there yet: the first worker makes it" in found["directory"].says
    assert found["writing"].level == "ok"
    assert list(tmp_path.iterdir()) == []


def test_a_file_is_no_directory(invoke: Invoke, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert findings(invoke, at=tmp_path / "file")["directory"].level == "fail"


def test_one_that_cannot_be_written_fails(
    invoke: Invoke, filled: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "access", lambda *_: False)
    assert findings(invoke, at=filled)["writing"].remedy == f"chown or chmod {filled}"


@pytest.mark.parametrize(
    ("kind", "level"), [("nfs4", "fail"), ("cifs", "fail"), ("overlay", "warn"), ("xfs", "ok")]
)
def test_where_the_disk_is_counts(
    invoke: Invoke, filled: Path, monkeypatch: pytest.MonkeyPatch, kind: str, level: str
) -> None:
    monkeypatch.setattr(checks_directory, "filesystem_of", lambda _: kind)
    assert findings(invoke, at=filled)["disk"].level == level


MOUNTS = """\
22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw
24 23 0:21 / /mnt/two\\040words rw - nfs4 server:/x rw,vers=4
25 22 0:22 / /mnt/two rw - xfs /dev/vdb rw
23 22 0:20 / /mnt rw,nosuid shared:2 - tmpfs tmpfs rw
"""


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/var/lib/recall", "ext4"),
        ("/mnt/x", "tmpfs"),
        ("/mnt/two words/recall", "nfs4"),
        ("/mnt/two/recall", "xfs"),
        ("/mntx", "ext4"),
    ],
)
def test_the_innermost_mount_is_the_disk(tmp_path: Path, path: str, kind: str) -> None:
    (tmp_path / "mountinfo").write_text(MOUNTS)
    found = checks_directory.filesystem_of(Path(path), str(tmp_path / "mountinfo"))
    assert found == kind


def test_a_machine_that_does_not_tell_its_mounts(tmp_path: Path) -> None:
    assert checks_directory.filesystem_of(tmp_path, str(tmp_path / "none")) is None


@pytest.mark.parametrize(("free", "level"), [(10, "fail"), (500, "warn"), (5000, "ok")])
def test_room_on_the_disk(
    invoke: Invoke, filled: Path, monkeypatch: pytest.MonkeyPatch, free: int, level: str
) -> None:
    usage = shutil.disk_usage(filled)._replace(free=free * 1024**2)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage)
    assert findings(invoke, at=filled)["space"].level == level


def refused(*_: Any, **__: Any) -> None:
    raise OSError(errno.EPERM, "Operation not permitted")


def test_a_disk_without_hard_links(
    invoke: Invoke, filled: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "link", refused)
    assert findings(invoke, at=filled)["hard links"].level == "fail"


@pytest.mark.parametrize("which", ["flock", "lockf"])
def test_a_disk_that_knows_no_locks(
    invoke: Invoke, filled: Path, monkeypatch: pytest.MonkeyPatch, which: str
) -> None:
    monkeypatch.setattr(fcntl, which, refused)
    assert findings(invoke, at=filled)["locks"].level == "fail"


@pytest.mark.parametrize(("which", "name"), [("flock", "flock"), ("lockf", "POSIX")])
def test_a_disk_that_gives_a_lock_to_everybody(
    invoke: Invoke, filled: Path, monkeypatch: pytest.MonkeyPatch, which: str, name: str
) -> None:
    monkeypatch.setattr(fcntl, which, lambda *_: None)
    assert f"{name} locks are given to two" in findings(invoke, at=filled)["locks"].says


# --- versions -----------------------------------------------------------------------------------


def test_a_sqlite_that_loses_commits_fails(
    invoke: Invoke, filled: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(apsw, "sqlite_lib_version", lambda: "3.51.2")
    found = findings(invoke, at=filled)["SQLite"]
    assert (found.level, "WAL-reset bug" in found.says) == ("fail", True)


def test_a_livekit_that_was_not_tested_fails(
    invoke: Invoke, filled: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    version = metadata.version

    def another(name: str) -> str:
        return "1.9.0" if name == "livekit-agents" else version(name)

    monkeypatch.setattr(metadata, "version", another)
    found = findings(invoke, at=filled)["livekit-agents"]
    assert found.level == "fail"
    assert 'pip install "livekit-agents' in found.remedy


def test_few_open_files_are_warned_of(
    invoke: Invoke, filled: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("resource.getrlimit", lambda _: (256, 4096))
    assert findings(invoke, at=filled)["open files"].level == "warn"


# --- the environment ----------------------------------------------------------------------------


def test_variables_that_nothing_reads_are_said(
    invoke: Invoke, filled: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RECALL_APIKEY", "x")
    monkeypatch.setenv("RECALL_API_KEY", "secret-x")
    monkeypatch.setenv("RECALL_URL", "https://recall.internal")
    ran = invoke("doctor", "--json", at=filled)
    found = {one["what"]: one for one in map(json.loads, ran.stdout.splitlines())}
    assert found["RECALL_APIKEY"]["remedy"] == "did you mean RECALL_API_KEY?"
    assert "which asks for none" in found["RECALL_API_KEY"]["says"]
    assert "checked is sqlite" in found["RECALL_URL"]["says"]
    assert "secret-x" not in ran.stdout


def test_a_key_file_that_is_not_there(invoke: Invoke, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RECALL_API_KEY_FILE", "/not/there")
    found = findings(invoke, "--url", "http://127.0.0.1:9")
    assert found["RECALL_API_KEY_FILE"].level == "fail"


def test_a_key_in_the_clear_is_warned_of(invoke: Invoke) -> None:
    found = findings(invoke, "--url", "http://recall.invalid:9")
    assert "in the clear" in found["address"].says
    assert found["server"].level == "fail"


# --- a server -----------------------------------------------------------------------------------


def test_a_server_without_a_key_yet(invoke: Invoke, own: Path) -> None:
    with Serving(own) as serving:
        found = findings(invoke, "--url", serving.url)
    assert list(found)[-6:] == ["server", "round trip", "store", "clock", "key", "spool"]
    assert "version 0.1.0" in found["server"].says
    assert found["key"].says == "none asked for on this machine; role admin"
    assert set(levels(found).values()) - {"ok"} <= {"warn"}


def test_the_role_of_a_key_is_found_without_harm(
    invoke: Invoke, own: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = sorted(path.name for path in (own / "calls").iterdir())
    keys = {role: made_key(own, role) for role in ("read", "agent", "admin")}
    with Serving(own) as serving:
        for role, key in keys.items():
            monkeypatch.setenv("RECALL_API_KEY", key)
            found = findings(invoke, "--url", serving.url)["key"]
            assert found.says == f"accepted, role {role}"
            assert found.level == ("warn" if role == "read" else "ok")
    assert sorted(path.name for path in (own / "calls").iterdir()) == before


def test_a_key_that_the_server_does_not_know(
    invoke: Invoke, own: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made_key(own, "agent")
    with Serving(own) as serving:
        assert findings(invoke, "--url", serving.url)["key"].level == "fail"
        monkeypatch.setenv("RECALL_API_KEY", f"recall_{'0' * 16}_{'x' * 43}")
        assert findings(invoke, "--url", serving.url)["key"].level == "fail"
        monkeypatch.setenv("RECALL_API_KEY", "not a key")
        assert findings(invoke, "--url", serving.url)["key"].level == "fail"


def test_no_server_there(invoke: Invoke) -> None:
    found = findings(invoke, "--url", "http://127.0.0.1:9")
    assert list(found)[-2:] == ["server", "spool"]
    assert found["server"].level == "fail"


class _Elsewhere(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"<html>welcome</html>")

    def log_message(self, *_: object) -> None:
        return


@contextmanager
def another_server() -> Iterator[str]:
    server = HTTPServer(("127.0.0.1", 0), _Elsewhere)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_another_server_there(invoke: Invoke) -> None:
    with another_server() as url:
        found = findings(invoke, "--url", url)["server"]
    assert found.level == "fail"
    assert "no Recall server" in found.says


@pytest.mark.parametrize(
    ("off", "level", "says"),
    [
        (0.0, "ok", "within 2 s"),
        (90.0, "warn", "1 min 30 s ahead of"),
        (-3600.0, "warn", "1 h behind"),
    ],
)
def test_how_far_the_clocks_are_apart(off: float, level: str, says: str) -> None:
    now = 1_700_000_000.5
    date = formatdate(1_700_000_000, usegmt=True)
    found = clock_finding(date, now + off, "clock", warn, off=2.0, harm="times are wrong")
    assert found.level == level
    assert says in found.says
    assert ("times are wrong" in found.says) is (level == "warn")


def test_a_server_that_tells_no_time() -> None:
    assert clock_finding("yesterday", 0.0, "clock", warn, off=2.0, harm="").level == "warn"
