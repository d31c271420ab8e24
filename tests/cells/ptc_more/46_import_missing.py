try:
    import nopandas as pd
except ImportError as e:
    print("none:", e)
try:
    from math import nothing_here
except ImportError as e: print(str(e).split("(")[0])
import importlib
print(importlib.util.find_spec("nonumpy") is None, importlib.import_module("json").dumps(1))
import nonumpy
# %%
import norequests
# %%
from nobs4 import BeautifulSoup
# %%
import os, subprocess, platform
print(platform.python_version() == ".".join(map(str, __import__("sys").version_info[:3])), platform.system(), platform.machine(), platform.platform(), os.name, bool(os.getpid()))
