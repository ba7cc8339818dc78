"""What a pipeline that stays has beside its jobs: settings, lease, metrics, and where alerts go."""
