"""By which entitlement a gang may have what it asks for."""
