"""What Prometheus and other watchers can read of a running job.

Everything here hears of the job what any observer hears, and asks the broker and the ledger in a
thread of its own: a page that is read shows what is known by then, and waits for nobody.
"""
