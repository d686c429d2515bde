"""What asks running gangs to give up their places: turns, pairs and moves, in one stage.

`TakingTurns` and `InPairs` are the reschedulers; each is one object to the core, which knows
the protocol `Rescheduler` alone. What they choose by stands in `ports.py`.
"""
