"""What the borders promise, as code: property tests and a coverage-guided fuzzer run the same targets.

`targets` names them; `./run fuzz` runs them under the fuzzer, the modules `test_*` under hypothesis.
"""
