"""The machine room: whole processes and whole machines, and everything that can happen to them."""
