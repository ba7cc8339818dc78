"""The words of the house: addresses, messages, documents, records, errors, limits. No I/O, no other room."""
