"""The rules of recall, pure: state (what holds now), validity (how far to trust it), fusion, the request."""
