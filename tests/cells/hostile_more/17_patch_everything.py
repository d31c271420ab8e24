import json, struct, builtins, os, sys, ast, asyncio, traceback, linecache, types, threading, random, inspect, contextlib
for m in (json, json.encoder, json.decoder, struct, ast, asyncio, traceback, linecache, types, inspect, contextlib, random):
    for n in list(vars(m)):
        if not n.startswith("__"):
            try: setattr(m, n, None)
            except Exception: pass
os.write = os.read = os._exit = None
for n in ("len", "repr", "str", "isinstance", "print", "type", "dict", "eval", "compile", "exec", "BaseException", "Exception", "__import__", "__build_class__"):
    setattr(builtins, n, None)
sys.modules.clear()
