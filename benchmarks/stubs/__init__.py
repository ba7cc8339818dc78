"""What a message costs in stubs of each language: `./run bench --only stubs`."""
