"""What monitoring can read of a running job, by threads that ask for it: no page ever waits."""

__all__ = ["observation"]
