"""All that lies between two domains: gates, routes, links, discovery, and the stubs that carry messages."""
