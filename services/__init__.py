"""Real servers for the tests: `python -m services --help`.

It runs before anything is installed, on Python's standard library alone. A server is one small class (`Kind`), listed
in `fleet.KINDS`: which packages bring it, what its fresh data is, what starts it, when it is ready, what its URL is.
"""
