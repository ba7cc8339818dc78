"""Who another domain is: found in DNS, its documents fetched and verified, its identity proved."""
