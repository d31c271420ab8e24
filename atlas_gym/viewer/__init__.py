"""Pictures of traces. Owns how they look; does not know live environments. Needs the extra `viewer`."""
