"""Replays: plan what to do with remaining messages, hand it to the job, follow its progress."""

__all__ = ["applying", "plan", "planning", "progress"]
