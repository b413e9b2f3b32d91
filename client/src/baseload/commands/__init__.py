"""The `baseload` command: one module per noun, loaded when it is used (see `command_index.py`)."""
