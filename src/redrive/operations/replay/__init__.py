"""Replays: plan what to do with remaining messages, let the job do it, see its progress."""

__all__ = ["applying", "changes", "entries", "plan", "planning", "progress"]
