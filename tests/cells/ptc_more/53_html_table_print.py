rows = [("Paris", 18, 0.123), ("Berlin", 16, 12.5), ("São Paulo", 27, -3.0)]
w = [max(len(str(r[i])) for r in rows) for i in range(3)]
print("+" + "+".join("-" * (x + 2) for x in w) + "+")
for r in rows: print("|" + "|".join(f" {str(v):<{w[i]}} " for i, v in enumerate(r)) + "|")
print("| " + " | ".join(f"{v:^{10}}" if isinstance(v, str) else f"{v:>10,.2f}" for v in rows[2]) + " |")
print("\n".join(f"{n:>3}: {'█' * n}" for n in (1, 5, 3)))
print(f"""multi {rows[0][0]!r}
  line {rows[1][1]:>5}
""")
print("a" "b" 'c', ("x"
  "y"), "tab\tsep".expandtabs(4), "line1\
line2")
from pprint import pprint, pformat
pprint({"k" * 10: list(range(30)), "b": {"nested": [{"a": 1, "b": "x" * 50}] * 2}}, width=60, sort_dicts=False); pformat([1, 2])
