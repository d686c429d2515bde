"""Do the tests notice a wrong decision? Mutants of the core and the engine, one at a time.

mutate.py   the places where a source can be changed, and the source with one of them changed
exchange.py changes the functions that a process has loaded, instead of importing them again
trial.py    runs all tests once, then on each mutant those that reach it, until one fails
__main__.py python -m tests.mutants --count 30 --seed 1: draws mutants, prints the survivors
README.md   the survivors of every sample, one by one
"""
