"""Addresses and who hears them: allocation, subscriptions, consents, catch-up, objects abroad."""
