"""The words of the house: addresses, messages, documents, records, errors and limits. Imports no other room, does no I/O."""
