"""Tools as records, names, Python signatures and JSON; search over them; what an agent has been shown.

Knows no sessions and no sandboxes. Locks and cached texts are in `lock` and `texts`, the functions
that a cell may call in `scaffold`.
"""

from atlas_gym.toolspace.exposure import NotLoaded, NotOffered, View
from atlas_gym.toolspace.prompts import EXECUTIONS, EXPOSURES, Execution, Exposure
from atlas_gym.toolspace.records import ServerTools, Tool, Toolset, parse_listing
from atlas_gym.toolspace.search import Index
from atlas_gym.toolspace.signatures import ArgumentError, bind, headline, schema_text, signature

__all__ = [
    "EXECUTIONS",
    "EXPOSURES",
    "ArgumentError",
    "Execution",
    "Exposure",
    "Index",
    "NotLoaded",
    "NotOffered",
    "ServerTools",
    "Tool",
    "Toolset",
    "View",
    "bind",
    "headline",
    "parse_listing",
    "schema_text",
    "signature",
]
