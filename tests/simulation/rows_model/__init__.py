"""The rows of an installation as a model in dictionaries."""
