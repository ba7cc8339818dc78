"""The sandbox: foreign stubs, compiled and run in confined processes of their own.

`sandbox.host` is the door for the node, `sandbox.core` the quiet room. This page imports nothing, so that the zygote
stays small.
"""
