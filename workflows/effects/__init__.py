"""Every side effect that a workflow may ask for; `activities/` implements each by its name.

`effect.py` is the typed stub, one more file for each noun.
"""
