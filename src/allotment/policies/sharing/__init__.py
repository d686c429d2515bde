"""On what grounds a gang may have what it asks for."""
