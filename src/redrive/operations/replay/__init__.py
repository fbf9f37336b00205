"""Replays: plan what is to become of remaining messages, let the job do it, see how far it is."""
