"""The HTTP API: parse, one call of the service, render. No decision is made here."""
