"""Identity of users: tokens, assertions, log-ins, identity providers."""
