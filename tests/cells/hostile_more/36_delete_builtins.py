import builtins
for n in list(vars(builtins)):
    if n not in ("delattr", "builtins"):
        try: delattr(builtins, n)
        except Exception: pass
