import sys
def main(argv=None):
    print("running", len(sys.argv), repr(sys.argv[0]) is not None)
    return 0
if __name__ == "__main__":
    print("rc", main())
# %%
import argparse
p = argparse.ArgumentParser(prog="tool")
p.add_argument("--n", type=int, default=3)
print(p.parse_args([]), p.parse_args(["--n", "5"]).n)
try: p.parse_args(["--n", "x"])
except SystemExit as e: print("exit", e.code)
# %%
__name__
# %%
__file__
