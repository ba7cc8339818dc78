"""The interop harness: independent runtimes, laboratories of real nodes, the demo."""
