"""The compose file: it names what exists, and its pieces fit each other."""

from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from recall_livekit.cli.app import app
from recall_livekit.watcher.endpoint import WEBHOOK_PATH

ROOT = Path(__file__).parents[2]
COMPOSE = ROOT / "examples" / "compose"


@pytest.fixture(scope="module")
def services() -> dict[str, Any]:
    loaded = yaml.safe_load((COMPOSE / "compose.yaml").read_text())
    found: dict[str, Any] = loaded["services"]
    return found


@pytest.fixture(scope="module")
def livekit() -> dict[str, Any]:
    loaded: dict[str, Any] = yaml.safe_load((COMPOSE / "livekit.yaml").read_text())
    return loaded


def test_it_has_a_server_two_workers_records_and_a_watcher(services: dict[str, Any]) -> None:
    assert set(services) == {"livekit", "key", "recall", "worker-1", "worker-2", "watcher"}


@pytest.mark.parametrize("name", ["recall", "watcher"])
def test_its_commands_are_ours(services: dict[str, Any], name: str) -> None:
    program, *arguments = services[name]["command"]
    assert program == "recall-livekit"
    shown = CliRunner().invoke(app, [*arguments, "--help"])  # an unknown option fails before it
    assert shown.exit_code == 0, shown.output
    unknown = CliRunner().invoke(app, [*arguments, "--no-such-option", "--help"])
    assert unknown.exit_code != 0


def test_all_use_one_key_of_livekit(services: dict[str, Any], livekit: dict[str, Any]) -> None:
    name, _, secret = services["livekit"]["environment"]["LIVEKIT_KEYS"].partition(": ")
    assert livekit["webhook"]["api_key"] == name
    for one in ("worker-1", "worker-2", "watcher"):
        told = services[one]["environment"]
        assert (told["LIVEKIT_API_KEY"], told["LIVEKIT_API_SECRET"]) == (name, secret)
        assert told["LIVEKIT_URL"] == f"ws://livekit:{livekit['port']}"


def test_webhooks_go_where_the_watcher_listens(
    services: dict[str, Any], livekit: dict[str, Any]
) -> None:
    command = services["watcher"]["command"]
    port = command[command.index("--listen") + 1]
    assert livekit["webhook"]["urls"] == [f"http://watcher{port}{WEBHOOK_PATH}"]


def test_the_records_and_their_key_are_where_they_are_looked_for(services: dict[str, Any]) -> None:
    server, maker = services["recall"], services["key"]
    assert server["environment"]["RECALL_STORE"] == maker["environment"]["RECALL_STORE"]
    port = server["command"][server["command"].index("--listen") + 1]
    for one in ("worker-1", "worker-2", "watcher"):
        told = services[one]["environment"]
        assert told["RECALL_URL"] == f"http://recall{port}"
        assert told["RECALL_API_KEY_FILE"] == "/keys/workers"
        assert "keys:/keys:ro" in services[one]["volumes"]
    assert "keys:/keys" in maker["volumes"]


def test_the_published_ports_are_those_of_the_server_on_this_machine_only(
    services: dict[str, Any], livekit: dict[str, Any]
) -> None:
    rtc = livekit["rtc"]
    wanted = [str(livekit["port"]), str(rtc["tcp_port"]), f"{rtc['udp_port']}/udp"]
    for published, port in zip(services["livekit"]["ports"], wanted, strict=True):
        assert published == f"127.0.0.1:{port.removesuffix('/udp')}:{port}"


def test_what_the_image_copies_is_there_and_not_left_out() -> None:
    ignored = (COMPOSE / "Dockerfile.dockerignore").read_text().splitlines()
    kept = {line.removeprefix("!") for line in ignored if line.startswith("!")}
    copied: set[str] = set()
    for line in (COMPOSE / "Dockerfile").read_text().splitlines():
        if line.startswith("COPY "):
            copied.update(line.split()[1:-1])
    copied = {path.removeprefix("./") for path in copied}
    assert copied == kept
    assert all((ROOT / path).exists() for path in copied)


def test_no_secret_is_in_it() -> None:
    example = (COMPOSE / ".env.example").read_text()
    values = [line.partition("=")[2] for line in example.splitlines() if "=" in line]
    assert values == ["", ""]
