"""The world outside: machines with processes, clouds, the object store."""
