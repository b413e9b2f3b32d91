"""When a watch begins anew whose worker process stops properly."""

from datetime import timedelta

NEXT_WATCH_AFTER = timedelta(seconds=1)
"""A watch lasts for days, and each stop is one more attempt of it: without a pause of its own the
usual one would have doubled with each stop, up to half a minute."""
