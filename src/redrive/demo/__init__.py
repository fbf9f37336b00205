"""The demos: the whole job on sample dead letters, and a check of where each one ended."""
