"""Settings of the property tests."""

from __future__ import annotations

from hypothesis import settings

# A busy machine must not decide a test.
settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")
