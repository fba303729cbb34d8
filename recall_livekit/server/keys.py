"""Keys: who may ask a server, for which namespace, and what.

A key is made once, shown once, and stored as a hash. The list of keys is an append-only chain
in the reserved namespace of the same store, so that every server process on it has the same.
"""

from __future__ import annotations

import hashlib
import hmac
import logging
import math
import re
import secrets
from collections.abc import Sequence
from typing import Annotated, Literal, get_args

import anyio
from pydantic import Field, TypeAdapter, ValidationError

from ..errors import Conflict, InvalidSettings, KeyRefused, RoleTooLow, StoreError, StoreUnavailable
from ..models import Value
from ..seams import Clock, SystemClock
from ..stores.base import Store
from ..stores.opening import check_namespace, open_store
from .namespaces import SYSTEM_NAMESPACE

__all__ = ["KeyInfo", "Keys", "NewKey", "Role", "open_keys"]

logger = logging.getLogger("recall_livekit.server")

Role = Literal["read", "agent", "admin"]
"""What a key may do: read only; what a worker does; all of it, erasing too."""

KNOWN_FOR = 2.0
"""Seconds that a list of keys is believed: a revocation anywhere takes effect within them."""
UNKNOWN_KEY_PAUSE = 0.25
"""A key that is not in the list is looked for anew, for it may just have been made: this often at
most, and who presents one waits for it."""
STALE = 30.0
"""Seconds that a list is gone by while the store does not answer; then nobody is let in."""
LOOK_SECONDS = 1.0
"""The longest that one look at the list may take, and the pause after one that failed."""

_CALL = "keys"
_PAGE = 256
_TRIES = 64
_KEY = re.compile(r"recall_([0-9a-f]{16})_[A-Za-z0-9_-]{43}\.[a-z0-9-]+")
"""Its id, its secret, and, for the client that shows it, its namespace."""


class _Made(Value):
    v: Literal[1] = 1
    kind: Literal["key"] = "key"
    at: float
    key_id: str
    namespace: str
    role: Role
    name: str
    sha256: str


class _Revoked(Value):
    v: Literal[1] = 1
    kind: Literal["revoked"] = "revoked"
    at: float
    key_id: str


_Entry = Annotated[_Made | _Revoked, Field(discriminator="kind")]
_entry: TypeAdapter[_Entry] = TypeAdapter(_Entry)


class KeyInfo(Value):
    """What may be told of a key: all but the key. Times in Unix seconds."""

    key_id: str
    namespace: str
    role: Role
    name: str
    created_at: float
    revoked_at: float | None = None

    def require(self, role: Role) -> None:
        """Let the key pass if it may do what `role` may.

        Raises:
            RoleTooLow: It may not.
        """
        roles: tuple[Role, ...] = get_args(Role)
        if roles.index(self.role) < roles.index(role):
            raise RoleTooLow(f"this needs a key of role {role}; this one's is {self.role}")


class NewKey(Value):
    """A key that was just made. `key` is the secret: it is told here and never again."""

    key: str = Field(repr=False)
    info: KeyInfo


class Keys:
    """The keys of one store. Share one between the requests of a process."""

    def __init__(self, store: Store, clock: Clock | None = None) -> None:
        """Read nothing yet. `store` is the one of the reserved namespace; see `open_keys`."""
        self._store = store
        self._clock = clock or SystemClock()
        self._known: dict[str, KeyInfo] = {}
        self._hashes: dict[str, str] = {}
        self._position = 0
        self._looked_at = -math.inf
        self._failed_at = -math.inf
        self._looking = anyio.Lock()

    async def create(self, namespace: str, role: Role, name: str) -> NewKey:
        """Make a key for one namespace; `name` says for a person whose it is.

        Raises:
            InvalidSettings: No such role, or a namespace that cannot be or is reserved.
            StoreError: It may have been made all the same; list the keys and revoke it.
        """
        if check_namespace(namespace) == SYSTEM_NAMESPACE:
            raise InvalidSettings(f"the namespace {SYSTEM_NAMESPACE} is the server's own")
        if role not in get_args(Role):
            raise InvalidSettings(f"{role!r} is no role: use {', '.join(get_args(Role))}")
        key_id = self._clock.new_id()
        # A secret is nobody's to repeat, not even a simulation's: it does not come from the clock.
        key = f"recall_{key_id}_{secrets.token_urlsafe(32)}.{namespace}"
        made = _Made(
            at=self._clock.now(),
            key_id=key_id,
            namespace=namespace,
            role=role,
            name=name[:200],
            sha256=_hash(key),
        )
        await self._append(made)
        return NewKey(key=key, info=self._known[key_id])

    async def listed(self) -> Sequence[KeyInfo]:
        """Return every key that was ever made, the oldest first, the revoked ones too.

        Raises:
            StoreError.
        """
        await self.look()
        return tuple(self._known.values())

    async def revoke(self, key_id: str) -> None:
        """Refuse the key from here on; other processes do within 2 s. Repeating it is harmless.

        Raises:
            InvalidSettings: There is no such key.
            StoreError.
        """
        await self.look()
        if key_id not in self._known:
            raise InvalidSettings(f"there is no key {key_id!r}: list the keys for their ids")
        if self._known[key_id].revoked_at is None:
            await self._append(_Revoked(at=self._clock.now(), key_id=key_id))

    async def check(self, presented: str | None) -> KeyInfo:
        """Return what the presented key is for.

        Raises:
            KeyRefused: None was presented, it is unknown, or it was revoked.
            StoreUnavailable: The list could not be read for too long to go by it.
        """
        await self._refresh(KNOWN_FOR)
        if presented is None:
            raise KeyRefused("this server wants a key: set RECALL_API_KEY, or pass api_key")
        if (match := _KEY.fullmatch(presented)) is not None and match[1] not in self._known:
            await self._look_again()
        known = self._known.get(match[1]) if match else None
        right = hmac.compare_digest(
            _hash(presented), self._hashes[known.key_id] if known else _hash("")
        )
        if known is None or not right:
            raise KeyRefused("this server does not know this key: ask its operator for one")
        if known.revoked_at is not None:
            raise KeyRefused(f"the key {known.key_id} was revoked: ask the operator for another")
        return known

    async def any_made(self) -> bool:
        """Whether a key was ever made here, be it revoked since.

        Raises:
            StoreUnavailable: As in `check`.
        """
        await self._refresh(KNOWN_FOR)
        return self._position > 0

    async def look(self) -> None:
        """Read the list on to its end.

        Raises:
            StoreError.
        """
        async with self._looking:
            await self._read_on()

    async def aclose(self) -> None:
        """Close the store."""
        await self._store.aclose()

    # --- inside -------------------------------------------------------------------------------

    async def _look_again(self) -> None:
        """Return with a list that was read after this was called; all who wait share one look."""
        asked = self._clock.monotonic()
        await self._clock.sleep(max(0.0, self._looked_at + UNKNOWN_KEY_PAUSE - asked))
        try:
            with anyio.fail_after(LOOK_SECONDS):
                async with self._looking:
                    if self._looked_at <= asked:
                        await self._read_on()
        except (StoreError, TimeoutError) as error:
            raise StoreUnavailable("the list of keys cannot be read: try again") from error

    async def _refresh(self, seconds: float) -> None:
        """Make the list no older than `seconds`. While one looks, and while the store does not
        answer, the others go by the list that there is, up to `STALE`."""
        now = self._clock.monotonic()
        age = now - self._looked_at
        busy = self._looking.locked() or now - self._failed_at <= LOOK_SECONDS
        if age <= seconds or (busy and age <= STALE):
            return
        try:
            with anyio.fail_after(LOOK_SECONDS):
                await self.look()
        except (StoreError, TimeoutError) as error:
            self._failed_at = self._clock.monotonic()
            if age > STALE:
                raise StoreUnavailable("the list of keys cannot be read: try again") from error
            logger.warning("the list of keys cannot be read; the last one is gone by: %s", error)

    async def _read_on(self) -> None:
        asked = self._clock.monotonic()
        while True:
            page = await self._store.read(_CALL, self._position, _PAGE)
            for data in page:
                self._apply(data)
            if len(page) < _PAGE:
                break
        self._looked_at = asked

    async def _append(self, entry: _Made | _Revoked) -> None:
        async with self._looking:
            for _ in range(_TRIES):
                await self._read_on()
                data = entry.model_dump_json().encode()
                try:
                    await self._store.append(_CALL, self._position, data)
                except Conflict:
                    continue
                self._apply(data)
                return
        raise StoreUnavailable("other processes changed the keys at every try")

    def _apply(self, data: bytes) -> None:
        self._position += 1
        try:
            entry = _entry.validate_json(data)
        except ValidationError:
            logger.warning("an entry of the keys is newer than this server: upgrade it")
            return
        if isinstance(entry, _Made):
            self._hashes[entry.key_id] = entry.sha256
            self._known[entry.key_id] = KeyInfo(
                key_id=entry.key_id,
                namespace=entry.namespace,
                role=entry.role,
                name=entry.name,
                created_at=entry.at,
            )
        elif (known := self._known.get(entry.key_id)) is not None:
            revoked = known.model_copy(update={"revoked_at": known.revoked_at or entry.at})
            self._known[entry.key_id] = revoked


def open_keys(store_url: str, clock: Clock | None = None) -> Keys:
    """Return the keys of the store at this address. Close it after use.

    Raises:
        InvalidSettings: The address names no store of this version.
    """
    return Keys(open_store(store_url, SYSTEM_NAMESPACE), clock)


def _hash(key: str) -> str:
    """A key is 256 random bits: one plain hash of it cannot be searched."""
    return hashlib.sha256(key.encode()).hexdigest()
