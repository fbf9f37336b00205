"""The small job of the outcomes' tests, for questions about its messages."""

from tests.outcomes.conftest import small_job

__all__ = ["small_job"]
