"""Systems that really run tasks: pure request building, thin IO, pure status mapping."""
