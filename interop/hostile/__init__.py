"""A domain that proves itself like any other and then misbehaves, and stubs that no node should suffer from."""
