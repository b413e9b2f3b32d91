# Written by client/generate.py: change _async/__init__.py instead.
