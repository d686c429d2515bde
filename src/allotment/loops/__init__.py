"""Ready-made callbacks of training frameworks that report progress; each is imported alone.

Such a module imports its framework, so it is imported only where that is there.
"""
