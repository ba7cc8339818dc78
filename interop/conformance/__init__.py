"""A conformance suite for messaging nodes: conversations written down from the message specification, over sockets.

It knows nothing of the node that it talks to: framing, JSON and expectations are its own, so that a mistake of our node
cannot hide by being made twice.
"""
