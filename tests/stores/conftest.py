import pytest

pytest.register_assert_rewrite("recall_livekit.testing.conformance")
