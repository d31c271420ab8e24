"""One MCP session over a byte link, and the sessions of one episode.

`loop` (the background event loop), `stream` and `codec` (framing and JSON), `handshake`, `session`, `values`
(results as Python values), `sessions` (the infra rule), `fake` (a server for tests). Does not know tasks,
budgets or what the agent was shown. Nothing is imported here: the SDK costs a second.
"""
