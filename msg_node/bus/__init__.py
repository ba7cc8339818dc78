"""The message bus: routing decision, send queues, effects of requests, middleware, taps."""
