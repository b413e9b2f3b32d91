"""How each lifecycle takes part in the simulation: what people ask, what goes wrong, what holds."""
