import ast
for src in ("(" * 3000 + ")" * 3000, "[" * 90 + "]" * 90, "-" * 100000 + "1", "x" + ".a" * 50000, "1" + "+1" * 100000, "f(" * 150 + ")" * 150, "if 1:\n" * 1 + " pass\n" * 10, "lambda:" * 5000 + "0", "a=" * 20000 + "0", "not " * 20000 + "1"):
    try:
        eval(compile(src, "b", "exec"), {"f": lambda *a: 0, "a": 0})
    except BaseException as e:
        print(type(e).__name__)
