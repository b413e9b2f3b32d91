"""The agent of ngrok, for tests and the demonstration."""
