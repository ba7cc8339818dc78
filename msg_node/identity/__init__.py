"""Who a user is: tokens, assertions, log-ins, identity providers."""
