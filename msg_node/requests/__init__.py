"""Requests that outlive a connection: actions and events, parked requests, inbox, guarantees, push."""
