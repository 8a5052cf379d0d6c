"""The pages operators see: each view finds, calls, renders. A fragment is a partial of its page's template."""
