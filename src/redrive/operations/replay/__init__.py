"""Replays: plan what to do with remaining messages, let the job do it, see its progress."""
