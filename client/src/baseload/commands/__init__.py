"""The `baseload` command: one module per noun, loaded only when it is used (see `index.py`)."""
