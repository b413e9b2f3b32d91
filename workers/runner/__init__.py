"""The runner: starts the processes of one machine, restarts what dies, ends all of it."""
