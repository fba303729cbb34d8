"""The suite that every store passes. Subclass it in a test module and say how to open yours::

    class TestMyStore(StoreConformance):
        @pytest.fixture(autouse=True)
        def place(self, tmp_path: Path) -> None:
            self.path = tmp_path

        def open_store(self) -> MyStore:
            return MyStore(self.path)

`SharedStoreConformance` adds what several processes on one store do to each other, and
`LockConformance` is for a store that is a `Locks` too. `RulesConformance` runs the rules of the
chain on the store, through the real engine. pytest and anyio's pytest plugin run them.
"""

from .locks import LockConformance
from .rules import RulesConformance
from .shared import SharedStoreConformance
from .store import StoreConformance

__all__ = ["LockConformance", "RulesConformance", "SharedStoreConformance", "StoreConformance"]
