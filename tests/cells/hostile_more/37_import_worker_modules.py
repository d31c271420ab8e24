import sys
for n in list(sys.modules):
    if "atlas" in n:
        m = sys.modules[n]
        for k in list(vars(m)):
            if not k.startswith("__"): setattr(m, k, None)
try:
    import atlas_gym
    print("IMPORTED")
except ImportError as e: print(e)
