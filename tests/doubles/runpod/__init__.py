"""RunPod, for tests and the demonstration."""
