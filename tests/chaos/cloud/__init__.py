"""The machine room's cloud: what happens to machines that cost money when anything of ours dies."""
