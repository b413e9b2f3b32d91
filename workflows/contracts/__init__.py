"""The nouns that every layer shares: frozen models, enums, queues, errors. Pure."""
