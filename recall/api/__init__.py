"""The REST API: views that find, call one service, and answer. The only package that imports rest_framework."""
