"""Where the job stands and how it comes back: the exactly-once protocol and what waits."""
