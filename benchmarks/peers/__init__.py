"""What others carry messages between two domains with, in the same run: brokers, an XMPP server, relays."""
