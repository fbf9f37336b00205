"""Queue managers, their objects, and how the names of a put are resolved; a pure library."""

__all__ = [
    "bindings", "document", "files", "kafka", "layout", "mq", "mqe", "names", "overview", "put",
    "receiving"
]  # fmt: skip
