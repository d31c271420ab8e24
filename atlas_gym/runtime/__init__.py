"""Where MCP servers live: manifests, installations, workspaces, walls, runtimes, garbage collection.

Gives byte streams and does not know MCP messages. Import from the modules: `manifest` and `catalog` say
what there is, `install` makes it runnable, `process` and `memory` start it.
"""
