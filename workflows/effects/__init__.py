"""Effects: every side effect of a workflow; `activities/` implements each effect by its name.

`effect.py` is the typed stub, one more file for each noun.
"""
