"""The whole story: the stack as processes, machines of the lab, and the public API alone."""
