"""Quality of service: enquiries, reservations and leases at a broker."""
