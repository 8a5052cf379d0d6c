"""The ledger's rules, pure: instants, ids, actors, canonical JSON, the hash chain, refusals."""
