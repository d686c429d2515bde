"""Do the tests notice a wrong decision? Mutants of the core and the engine, one at a time.

mutate.py   the places where a source can be changed, and the source with one of them changed
__main__.py python -m tests.mutants --count 30 --seed 1: draws places, runs the pure tests
            and the corpus on each changed source, prints the survivors
README.md   the survivors of one sample, one by one
"""
