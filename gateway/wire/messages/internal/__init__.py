"""Messages of the internal APIs, a module each. All have one version, 0, which is flexible."""
