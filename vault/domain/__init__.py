"""The vault's rules, pure: what a memory may hold, who may reach it, which links replace."""
