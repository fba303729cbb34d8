"""What ``doctor`` checks of this process and its environment."""

from __future__ import annotations

import difflib
import platform
import resource
from collections.abc import Iterator, Mapping
from importlib import metadata
from pathlib import Path

from ..errors import InvalidSettings, StoreUnusable
from ..remote.address import check_address, is_loopback, is_remote
from .findings import Finding, fail, ok, warn
from .texts import public_url
from .versions import allows

__all__ = ["environment", "software"]

DISTRIBUTION = "recall-livekit"
KNOWN = (
    "RECALL_API_KEY",
    "RECALL_API_KEY_FILE",
    "RECALL_SPOOL",
    "RECALL_STORE",
    "RECALL_URL",
)
"""The variables that are read. Others of that beginning are likely mistyped."""
FEW_FILES = 1024


def software(*, embedded: bool) -> Iterator[Finding]:
    """Check what runs here."""
    yield _package()
    yield _python()
    yield _livekit()
    if embedded:
        yield _sqlite()
        yield _open_files()


def _package() -> Finding:
    try:
        return ok("recall-livekit", metadata.version(DISTRIBUTION))
    except metadata.PackageNotFoundError:
        says = "runs from a directory that is not installed"
        return warn("recall-livekit", says, "pip install the checkout, so that ranges are known")


def _python() -> Finding:
    wanted = _told("Requires-Python")
    version = platform.python_version()
    if wanted and not allows(wanted, version):
        return warn("python", f"{version}: tested are {wanted}", "use one of these")
    return ok("python", version)


def _livekit() -> Finding:
    try:
        version = metadata.version("livekit-agents")
    except metadata.PackageNotFoundError:
        return warn("livekit-agents", "not installed", "RecallAgent needs it; Recall does not")
    wanted = next(
        (
            one.removeprefix("livekit-agents").split(";")[0].strip()
            for one in _requires()
            if one.startswith("livekit-agents")
        ),
        "",
    )
    if wanted and not allows(wanted, version):
        return fail(
            "livekit-agents",
            f"{version}: this version of recall-livekit works with {wanted}",
            f'pip install "livekit-agents{wanted}", or another recall-livekit',
        )
    return ok("livekit-agents", version)


def _sqlite() -> Finding:
    try:
        import apsw

        from ..stores.sqlite_file import refuse_affected_sqlite
    except ImportError as error:
        return fail("SQLite", f"apsw cannot be loaded: {error}", "pip install apsw")
    version = apsw.sqlite_lib_version()
    try:
        refuse_affected_sqlite(version)
    except StoreUnusable as error:
        return fail("SQLite", str(error), 'pip install --upgrade "apsw>=3.51.3"')
    return ok("SQLite", f"{version} (apsw), without the WAL-reset bug")


def _open_files() -> Finding:
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < FEW_FILES:
        return warn(
            "open files", f"at most {soft} in one process", "raise it, with `ulimit -n 4096`"
        )
    return ok("open files", f"up to {soft} in one process")


# --- environment --------------------------------------------------------------------------------


def environment(url: str, given: bool, variables: Mapping[str, str]) -> Iterator[Finding]:
    """Check what the environment says, and that it fits the address."""
    yield _where(url, given, variables)
    yield from _mistyped(variables)
    if is_remote(url):
        yield from _remote(url, variables)
    elif any(variables.get(name) for name in ("RECALL_API_KEY", "RECALL_API_KEY_FILE")):
        says = "a key is set, but the records are in a directory, which asks for none"
        yield warn("RECALL_API_KEY", says, "set RECALL_URL to the server, or leave out the key")


def _where(url: str, given: bool, variables: Mapping[str, str]) -> Finding:
    told = variables.get("RECALL_URL")
    if told and told != url:
        says = f"{public_url(told)} is where workers record; checked is {public_url(url)}"
        return warn("RECALL_URL", says, "leave out --url to check what workers use")
    if told:
        return ok("RECALL_URL", public_url(told))
    if given:
        says = "not set here: a worker without it records in its ./recall-data"
        return warn("RECALL_URL", says, "set it where workers run")
    return ok("RECALL_URL", "not set: workers record in ./recall-data of their working directory")


def _mistyped(variables: Mapping[str, str]) -> Iterator[Finding]:
    for name in sorted(variables):
        if name.startswith("RECALL_") and name not in KNOWN:
            near = difflib.get_close_matches(name, KNOWN, 1) or ["one of " + ", ".join(KNOWN)]
            yield warn(name, "is set, and nothing reads it", f"did you mean {near[0]}?")


def _remote(url: str, variables: Mapping[str, str]) -> Iterator[Finding]:
    try:
        check_address(url)
    except InvalidSettings as error:
        yield fail("address", str(error), "correct RECALL_URL or --url")
        return
    if url.startswith("http:") and not is_loopback(url):
        says = "http: the key and every word cross the network in the clear"
        yield warn("address", says, "use https, with a proxy in front of the server")
    yield from _key_variables(variables)
    proxies = [name for name in ("HTTPS_PROXY", "https_proxy", "ALL_PROXY") if variables.get(name)]
    if proxies:
        says = "is set; requests to a Recall server do not go through it"
        yield warn(proxies[0], says, "pass http_client= to Recall.open if they have to")


def _key_variables(variables: Mapping[str, str]) -> Iterator[Finding]:
    key, file = variables.get("RECALL_API_KEY"), variables.get("RECALL_API_KEY_FILE")
    if key and file:
        says = "and RECALL_API_KEY are both set: the file is not read"
        yield warn("RECALL_API_KEY_FILE", says, "unset one of them; a file can be rotated")
    elif file:
        yield _key_file(Path(file))


def _key_file(path: Path) -> Finding:
    try:
        path.read_bytes()
    except OSError as error:
        says = f"{path} cannot be read: {error.strerror}"
        return fail("RECALL_API_KEY_FILE", says, "check the path and who may read it")
    return ok("RECALL_API_KEY_FILE", str(path))


def _requires() -> list[str]:
    try:
        return metadata.requires(DISTRIBUTION) or []
    except metadata.PackageNotFoundError:
        return []


def _told(field: str) -> str:
    try:
        return metadata.metadata(DISTRIBUTION)[field] or ""
    except metadata.PackageNotFoundError:
        return ""
