"""The runner: starts the processes of one machine, restarts those that die, and ends them all."""
